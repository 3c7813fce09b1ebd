//! Stands between a client and a program that the client starts on its standard streams, passes on what comes, and keeps it and how the program
//! ended. It judges nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::process::PATIENCE;
use crate::wait::until;

/// Keeps the runs of one program.
pub struct StdioTap {
    folder: TempDir,
}

/// One run of the program, which has ended.
#[derive(Clone, Debug)]
pub struct Run {
    /// What went into its standard input.
    pub sent: String,
    /// What came out of its standard output.
    pub answered: String,
    /// What it said on standard error.
    pub log: String,
    /// Its exit status; below zero for the signal that ended it.
    pub status: i32,
}

impl StdioTap {
    /// Makes the program that a client starts in place of this one. It has no arguments.
    pub fn new(command: &Command) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("runs"))?;
        let tap = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/stdio_tap.py");
        let mut words = vec!["exec python3 -B".to_owned()];
        words.extend([&tap, &folder.path().join("runs")].map(|path| quoted(&path.display().to_string())));
        words.push(quoted(&command.get_program().to_string_lossy()));
        words.extend(command.get_args().map(|argument| quoted(&argument.to_string_lossy())));
        let tap = Self { folder };
        fs::write(tap.program(), format!("#!/bin/sh\n{}\n", words.join(" ")))?;
        fs::set_permissions(tap.program(), fs::Permissions::from_mode(0o755))?;
        Ok(tap)
    }

    /// What the client starts.
    pub fn program(&self) -> PathBuf {
        self.folder.path().join("program")
    }

    /// Every run, the first one first. Waits until each has ended.
    pub async fn runs(&self) -> Result<Vec<Run>> {
        until("every run of the program to end", PATIENCE, || async {
            let entries = fs::read_dir(self.folder.path().join("runs"))?;
            let mut folders = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
            folders.sort();
            folders.iter().map(|folder| Run::read(folder)).collect()
        })
        .await
    }
}

impl Run {
    fn read(folder: &Path) -> Result<Self> {
        let text = |name: &str| {
            fs::read_to_string(folder.join(name))
                .with_context(|| format!("{name} of a run, which told {:?}", fs::read_to_string(folder.join("log"))))
        };
        Ok(Self { status: text("status")?.parse()?, sent: text("in")?, answered: text("out")?, log: text("log")? })
    }
}

/// A word of a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}
