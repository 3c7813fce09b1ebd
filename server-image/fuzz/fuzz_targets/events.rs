//! A stream of events: which they are, and where they end, does not depend on how it is cut.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mooring_server::laws::events(bytes));
