//! The program of the front door; the library has everything.

fn main() -> anyhow::Result<()> {
    mooring_server::run()
}
