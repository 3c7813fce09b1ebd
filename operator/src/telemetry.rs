//! Logs, as JSON for machines or as text for people, on standard error: standard output belongs to what commands print.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// Text.
    Text,
}

/// Starts logging what `filter` lets through, for example `info` or `info,mooring=debug`.
pub fn start(format: LogFormat, filter: &str) -> Result<(), ParseError> {
    let filter = EnvFilter::builder().parse(filter)?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    // A second start, which only tests see, keeps the first one's settings.
    let _ = match format {
        LogFormat::Json => logs.json().flatten_event(true).with_current_span(false).try_init(),
        LogFormat::Text => logs.compact().with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
    Ok(())
}
