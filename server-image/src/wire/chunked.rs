//! A chunked body (RFC 9112 section 7.1), byte by byte: finds its data and its end, and refuses what is malformed.

use super::fault::Fault;
use super::head::{is_control, is_token};
use super::limits::WireLimits;

/// A chunked body that is being read.
#[derive(Debug, Default)]
pub struct Chunked {
    at: At,
    /// Bytes of the chunk that are still to come.
    left: u64,
    /// Digits of its size.
    digits: u8,
    /// Bytes of extensions, of all chunks.
    extensions: usize,
    /// Bytes of trailers.
    trailers: usize,
    /// Number of trailers.
    count: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Size,
    /// Whitespace before an extension.
    Padding,
    Extension,
    SizeEnd,
    Data,
    DataCr,
    DataLf,
    Trailer,
    TrailerName,
    TrailerValue,
    TrailerEnd,
    End,
}

/// Most bytes of extensions in one body: nobody uses them, and each is work.
const EXTENSIONS: usize = 1024;
/// Most digits of a size.
const DIGITS: u8 = 15;

/// How far a body was read.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// All bytes belong to it.
    More,
    /// So many bytes belong to it, the last one among them.
    Done(usize),
    /// So many bytes are good, the next is not.
    Fault(usize, Fault),
}

/// What stands at the beginning of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// So many bytes of a chunk's data.
    Data(usize),
    /// So many bytes between the data: all that are there, or those before data.
    Framing(usize),
    /// So many bytes, the last one of the body among them.
    End(usize),
    /// So many good bytes, the next is not.
    Fault(usize, Fault),
}

impl Chunked {
    /// Reads on.
    pub fn read(&mut self, bytes: &[u8], limits: &WireLimits) -> Progress {
        let mut position = 0;
        while let Some(rest) = bytes.get(position..).filter(|rest| !rest.is_empty()) {
            match self.next(rest, limits) {
                Piece::Data(taken) | Piece::Framing(taken) => position += taken,
                Piece::End(taken) => return Progress::Done(position + taken),
                Piece::Fault(taken, fault) => return Progress::Fault(position + taken, fault),
            }
        }
        Progress::More
    }

    /// Whether the next byte is data.
    pub fn is_in_data(&self) -> bool {
        self.at == At::Data
    }

    /// Reads the first piece of bytes that are not none.
    pub fn next(&mut self, bytes: &[u8], limits: &WireLimits) -> Piece {
        if self.at == At::Data {
            let taken = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
            self.left -= taken as u64;
            if self.left == 0 {
                self.at = At::DataCr;
            }
            return Piece::Data(taken);
        }
        for (position, byte) in bytes.iter().enumerate() {
            match self.step(*byte, limits) {
                Ok(Some(At::Data)) => {
                    self.at = At::Data;
                    return Piece::Framing(position + 1);
                }
                Ok(Some(at)) => self.at = at,
                Ok(None) => return Piece::End(position + 1),
                Err(fault) => return Piece::Fault(position, fault),
            }
        }
        Piece::Framing(bytes.len())
    }

    /// Where one byte leads: `None` is the end of the body.
    fn step(&mut self, byte: u8, limits: &WireLimits) -> Result<Option<At>, Fault> {
        let next = match (self.at, byte) {
            (At::Size, _) if byte.is_ascii_hexdigit() => {
                self.digits += 1;
                if self.digits > DIGITS {
                    return Err(Fault::Chunk);
                }
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                self.left = self.left << 4 | u64::from(digit);
                At::Size
            }
            (At::Size, b' ' | b'\t') if self.digits > 0 => At::Padding,
            (At::Size, b';') if self.digits > 0 => At::Extension,
            (At::Size, b'\r') if self.digits > 0 => At::SizeEnd,
            (At::Padding, b';') => At::Extension,
            (At::Extension, b'\r') => At::SizeEnd,
            (At::Padding, b' ' | b'\t') | (At::Extension, _) if !is_control(byte) => {
                self.extensions += 1;
                if self.extensions > EXTENSIONS {
                    return Err(Fault::Extensions);
                }
                self.at
            }
            (At::SizeEnd, b'\n') => {
                self.digits = 0;
                if self.left == 0 { At::Trailer } else { At::Data }
            }
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => At::Size,
            (At::Trailer, b'\r') => At::End,
            (At::End, b'\n') => return Ok(None),
            (At::Trailer | At::TrailerName | At::TrailerValue | At::TrailerEnd, _) => {
                return self.trailer(byte, limits).map(Some);
            }
            _ => return Err(Fault::Chunk),
        };
        Ok(Some(next))
    }

    fn trailer(&mut self, byte: u8, limits: &WireLimits) -> Result<At, Fault> {
        self.trailers += 1;
        self.count += usize::from(self.at == At::Trailer);
        if self.trailers > limits.header_bytes || self.count > limits.header_count {
            return Err(Fault::Trailer);
        }
        match (self.at, byte) {
            (At::Trailer | At::TrailerName, _) if is_token(byte) => Ok(At::TrailerName),
            (At::TrailerName, b':') => Ok(At::TrailerValue),
            (At::TrailerValue, b'\r') => Ok(At::TrailerEnd),
            (At::TrailerValue, _) if !is_control(byte) => Ok(At::TrailerValue),
            (At::TrailerEnd, b'\n') => Ok(At::Trailer),
            _ => Err(Fault::Trailer),
        }
    }
}
