//! Cutting texts of others to what a status or an event may hold.

/// The beginning of a text, at most `bytes` long, never inside a character.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

/// The end of a text, at most `bytes` long: of a log the last lines tell.
pub(crate) fn tail(text: &str, bytes: usize) -> &str {
    text.get(text.ceil_char_boundary(text.len().saturating_sub(bytes))..).unwrap_or(text)
}

/// The text on one line.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("äöü", 3), "ä");
        assert_eq!(cut("ab", 3), "ab");
        assert_eq!(tail("äöü", 3), "ü");
        assert_eq!(tail("ab", 3), "ab");
        assert_eq!(one_line(" a\n\tb "), "a b");
    }
}
