//! `mooring-server healthcheck`: asks a server whether it is ready, for container runtimes, because the image has no shell
//! and no other program. One line to standard output, and an exit code.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::Full;

use crate::cli::Healthcheck;
use crate::clients::Clients;
use crate::log::cause;

/// Longest wait for the answer; runtimes kill the check soon after.
const WAIT: Duration = Duration::from_secs(5);

/// Asks, and tells.
pub async fn run(arguments: &Healthcheck) -> anyhow::Result<ExitCode> {
    let url = arguments.url();
    let (said, code) = match ask(&url).await {
        Ok(StatusCode::OK) => ("ready".to_owned(), ExitCode::SUCCESS),
        Ok(StatusCode::SERVICE_UNAVAILABLE) => ("not ready".to_owned(), ExitCode::FAILURE),
        Ok(status) => (format!("not ready: {} answered {status}", told(&url)), ExitCode::FAILURE),
        Err(error) => (format!("not reachable: {}: {error}", told(&url)), ExitCode::FAILURE),
    };
    writeln!(std::io::stdout(), "{said}")?;
    Ok(code)
}

/// A URL without credentials: user and query are left out, and what is no URL may be anything.
fn told(url: &str) -> String {
    let uri = url.parse::<Uri>().unwrap_or_default();
    let (Some(scheme), Some(host)) = (uri.scheme(), uri.host()) else { return "the URL".to_owned() };
    let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{scheme}://{host}{port}{}", uri.path())
}

async fn ask(url: &str) -> Result<StatusCode, String> {
    let request = Request::get(url).body(Full::new(Bytes::new())).map_err(|error| error.to_string())?;
    let client = Clients::default().api()?;
    match tokio::time::timeout(WAIT, client.request(request)).await {
        Ok(Ok(response)) => Ok(response.status()),
        Ok(Err(error)) => Err(cause(&error)),
        Err(_) => Err(format!("no answer within {} s", WAIT.as_secs())),
    }
}
