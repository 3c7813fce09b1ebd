//! The program of the front door; the library has everything but the allocator.

use std::process::ExitCode;

use dlmalloc::GlobalDlmalloc;

/// musl's own takes longer for each call, and mimalloc, as fast as this one, holds twice the memory: docs/performance.md.
#[global_allocator]
static ALLOCATOR: GlobalDlmalloc = GlobalDlmalloc;

fn main() -> anyhow::Result<ExitCode> {
    mooring_server::run()
}
