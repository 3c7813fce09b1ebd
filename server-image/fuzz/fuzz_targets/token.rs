//! Tokens of sessions: no text opens that nobody sealed, and no two texts mean the same bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mooring_server::laws::token(bytes));
