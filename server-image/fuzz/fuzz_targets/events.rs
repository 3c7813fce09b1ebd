//! The end of an event: it does not depend on how a stream is cut.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mooring_server::laws::events(bytes));
