//! The only place that makes randomness: the operating system's, for keys, and a little of it for jitter.

/// The operating system has no randomness to give. Nothing can be minted then.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the operating system gave no random bytes: {0}")]
pub struct RandomError(#[from] getrandom::Error);

/// Random bytes, fit for keys.
#[expect(clippy::disallowed_methods, reason = "this is the rim: the one source of randomness")]
pub fn bytes<const N: usize>() -> Result<[u8; N], RandomError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// A number from 0 up to 1, to spread retries; one half where there is no randomness.
pub fn fraction() -> f64 {
    bytes::<4>().map_or(0.5, |bytes| f64::from(u32::from_be_bytes(bytes)) / (f64::from(u32::MAX) + 1.0))
}
