//! The small HTTP API behind `examples/weather.yaml`: forecasts that depend on the city's name alone, so that a test
//! knows what a tool must answer.

use axum::extract::Query;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Question {
    city: String,
    days: Option<u32>,
}

fn forecast(question: &Question) -> Result<Value, String> {
    let days = question.days.unwrap_or(1);
    if !(1..=7).contains(&days) {
        return Err(format!("days is {days}; a forecast covers 1 to 7 days"));
    }
    let letters = u32::try_from(question.city.chars().count()).unwrap_or(u32::MAX);
    let sky = match letters % 3 {
        0 => "sunny",
        1 => "cloudy",
        _ => "rainy",
    };
    let days: Vec<Value> =
        (0..days).map(|day| json!({"day": day, "sky": sky, "celsius": 12 + letters % 10 + day})).collect();
    Ok(json!({"city": question.city, "days": days}))
}

async fn answer(Query(question): Query<Question>) -> (StatusCode, Json<Value>) {
    match forecast(&question) {
        Ok(forecast) => (StatusCode::OK, Json(forecast)),
        Err(reason) => (StatusCode::BAD_REQUEST, Json(json!({"error": reason}))),
    }
}

/// Echoes what it was sent, so that a person sees what a declared tool makes of its arguments.
async fn report(Json(body): Json<Value>) -> Json<Value> {
    Json(json!({"received": body}))
}

/// Where it listens: everywhere, as in its image, unless a test says otherwise.
#[expect(clippy::disallowed_methods, reason = "a program this small has no command line")]
fn listen() -> String {
    std::env::var("WEATHER_API_LISTEN").unwrap_or_else(|_| "0.0.0.0:8000".into())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let router = Router::new()
        .route("/v1/forecast", get(answer))
        .route("/v1/report", axum::routing::post(report))
        .route("/health", get(|| async { "ok" }));
    let listener = tokio::net::TcpListener::bind(listen()).await?;
    let stop = async {
        let terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
        if let Ok(mut terminated) = terminated {
            terminated.recv().await;
        }
    };
    axum::serve(listener, router).with_graceful_shutdown(stop).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forecast_follows_from_the_name() {
        let ask = |city: &str, days| forecast(&Question { city: city.into(), days });
        assert_eq!(
            ask("Oslo", None).unwrap(),
            json!({"city": "Oslo", "days": [{"day": 0, "sky": "cloudy", "celsius": 16}]})
        );
        assert_eq!(ask("Oslo", Some(3)).unwrap()["days"].as_array().unwrap().len(), 3);
        assert!(ask("Oslo", Some(0)).is_err());
        assert!(ask("Oslo", Some(8)).is_err());
    }
}
