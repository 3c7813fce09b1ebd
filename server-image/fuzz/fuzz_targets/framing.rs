//! The byte stream of a connection: its verdict does not depend on how the bytes arrive.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mooring_server::laws::framing(bytes));
