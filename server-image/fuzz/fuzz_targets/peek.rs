//! The side view of a message: any bytes are judged, and what is accepted is JSON with one reading.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mooring_server::laws::peek(bytes));
