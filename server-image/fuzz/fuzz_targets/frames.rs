//! The byte stream of an HTTP/2 connection: where it stands does not depend on how the bytes arrive.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mooring_server::laws::frames(bytes));
