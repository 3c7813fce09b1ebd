//! Reads what a process says at `/metrics`, in the classic text format of Prometheus.

use anyhow::{Context, Result, ensure};

/// The sum of a metric over all its samples whose labels contain this text. That nothing has this name is an error: such
/// a sum would be 0 whatever happened. A family of which nothing was counted yet has no name there either.
pub fn sum(text: &str, name: &str, labels: &str) -> Result<f64> {
    let is_its = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
    let mut types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    ensure!(types.any(is_its), "no metric has the name {name}");
    let samples = text.lines().filter(|line| is_its(line) && line.contains(labels));
    samples
        .map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).context(line.to_owned()))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::sum;

    const TEXT: &str = "# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{status=\"2xx\"} 5
requests_total{status=\"4xx\"} 2
# HELP requests_total_size Their size.
# TYPE requests_total_size gauge
requests_total_size 70
";

    #[test]
    fn a_metric_is_summed_by_its_whole_name() {
        for (name, labels, expected) in
            [("requests_total", "", 7.0), ("requests_total", "4xx", 2.0), ("requests_total_size", "", 70.0)]
        {
            let found = sum(TEXT, name, labels).ok();
            assert!(found.is_some_and(|found| (found - expected).abs() < 0.1), "{name} {labels}: {found:?}");
        }
    }

    #[test]
    fn nothing_of_a_metric_is_zero_and_no_metric_is_an_error() {
        assert!(sum(TEXT, "requests_total", "5xx").is_ok_and(|found| found < 0.1));
        for name in ["requests", "request_total", "errors_total", "TYPE"] {
            assert!(sum(TEXT, name, "").is_err(), "{name}");
        }
        assert!(sum("# TYPE a gauge\na b\n", "a", "").is_err());
    }
}
