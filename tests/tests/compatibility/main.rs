//! Clients and servers that nobody here wrote, with the real front door between them, all as processes on loopback. What
//! was seen is `docs/compatibility.md`.

mod api;
mod backends;
mod clients;
mod document;
mod lost;
mod matrix;
mod refusals;
mod spaced;
mod stdio;

/// The document is one file, so one test makes it.
#[tokio::test]
async fn the_document_says_what_is_seen() -> anyhow::Result<()> {
    let (cells, spoken, refused) = tokio::try_join!(matrix::run(), stdio::run(), refusals::run())?;
    let lost = lost::run().await?; // by itself: all its clients are there at once
    document::check(&document::text(&cells, &spoken, &refused, &lost))
}
