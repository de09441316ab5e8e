//! Addresses in what a proxied server answers, made to lead back through the proxy: redirects, and
//! the links of HTML pages. Pure.

/// Where a proxied server is seen from outside.
pub(super) struct View<'a> {
    /// The path up to and including `proxy`.
    pub prefix: &'a str,
    /// The server's own `host:port`.
    pub backend: &'a str,
    /// The host the client asked.
    pub host: &'a str,
}

/// Attributes that hold addresses, by tag.
const LINKS: &[(&str, &[&str])] = &[
    ("a", &["href"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["src", "longdesc"]),
    ("iframe", &["src", "longdesc"]),
    ("img", &["src", "longdesc", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("link", &["href"]),
    ("object", &["data", "codebase", "classid", "usemap"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

impl View<'_> {
    /// An address as the client must use it. Relative ones and those of other hosts stay.
    pub fn address(&self, address: &str) -> String {
        let (host, path) = match address.split_once("://") {
            Some((_, rest)) => match rest.find('/') {
                Some(slash) => rest.split_at(slash),
                None => (rest, "/"),
            },
            None if address.starts_with("//") => return address.to_string(),
            None => ("", address),
        };
        let ours = host.is_empty() || host == self.backend || host == self.host;
        let inside = path
            .strip_prefix(self.prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']));
        if !ours || !path.starts_with('/') || inside {
            return address.to_string();
        }
        format!("{}{path}", self.prefix)
    }

    /// A page with its links made to lead through the proxy.
    pub fn page(&self, page: &str) -> String {
        let mut out = String::with_capacity(page.len() + 256);
        let mut rest = page;
        while let Some(start) = rest.find('<') {
            let (before, tag) = rest.split_at(start);
            out.push_str(before);
            if let Some(comment) = tag.strip_prefix("<!--") {
                let end = comment.find("-->").map_or(tag.len(), |at| at + 7);
                out.push_str(&tag[..end]);
                rest = &tag[end..];
                continue;
            }
            // A bracket that no name follows is text.
            if !tag[1..].starts_with(|letter: char| letter.is_ascii_alphabetic()) {
                out.push('<');
                rest = &tag[1..];
                continue;
            }
            let end = end_of_tag(tag);
            self.tag(&tag[..end], &mut out);
            rest = &tag[end..];
        }
        out.push_str(rest);
        out
    }

    fn tag(&self, tag: &str, out: &mut String) {
        let name: String = tag[1..]
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .map(|letter| letter.to_ascii_lowercase())
            .collect();
        let Some((_, attributes)) = LINKS.iter().find(|(known, _)| *known == name) else {
            return out.push_str(tag);
        };
        let mut rest = tag;
        while let Some(equals) = rest.find('=') {
            let (before, value) = rest.split_at(equals + 1);
            out.push_str(before);
            let attribute = before[..equals]
                .trim_end()
                .rsplit(|letter: char| letter.is_ascii_whitespace() || letter == '/')
                .next()
                .unwrap_or_default()
                .to_ascii_lowercase();
            let trimmed = value.trim_start();
            out.push_str(&value[..value.len() - trimmed.len()]);
            let (quote, text, after) = match trimmed.chars().next() {
                Some(quote @ ('"' | '\'')) => match trimmed[1..].split_once(quote) {
                    Some((text, after)) => (Some(quote), text, after),
                    None => return out.push_str(trimmed),
                },
                _ => {
                    let end = trimmed
                        .find(|letter: char| letter.is_ascii_whitespace() || letter == '>')
                        .unwrap_or(trimmed.len());
                    (None, &trimmed[..end], &trimmed[end..])
                }
            };
            let text = match attributes.contains(&attribute.as_str()) {
                true => self.address(text),
                false => text.to_string(),
            };
            out.extend(quote);
            out.push_str(&text);
            out.extend(quote);
            rest = after;
        }
        out.push_str(rest);
    }
}

/// Just behind the `>` that ends a tag, which quoted values may contain.
fn end_of_tag(tag: &str) -> usize {
    let mut quote = None;
    for (at, letter) in tag.char_indices() {
        match (quote, letter) {
            (None, '>') => return at + 1,
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            _ => {}
        }
    }
    tag.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEW: View<'_> = View {
        prefix: "/api/v1/namespaces/a/pods/b/proxy",
        backend: "10.0.0.1:80",
        host: "localhost:8001",
    };

    #[test]
    fn addresses_of_the_server_lead_through_the_proxy() {
        for (address, expected) in [
            ("/x?y=1", "/api/v1/namespaces/a/pods/b/proxy/x?y=1"),
            (
                "http://10.0.0.1:80/x",
                "/api/v1/namespaces/a/pods/b/proxy/x",
            ),
            (
                "http://localhost:8001/x",
                "/api/v1/namespaces/a/pods/b/proxy/x",
            ),
            ("http://elsewhere/x", "http://elsewhere/x"),
            ("//elsewhere/x", "//elsewhere/x"),
            ("x/y", "x/y"),
            ("#part", "#part"),
            (
                "/api/v1/namespaces/a/pods/b/proxy/x",
                "/api/v1/namespaces/a/pods/b/proxy/x",
            ),
        ] {
            assert_eq!(VIEW.address(address), expected);
        }
    }

    #[test]
    fn links_in_pages_lead_through_the_proxy() {
        let page = r#"<p title="/no">a < b <a class=x href="/y">y</a><IMG alt='>' src=/z><!-- <a href="/c"> --><a href="q"#;
        let expected = page
            .replace("\"/y\"", "\"/api/v1/namespaces/a/pods/b/proxy/y\"")
            .replace("src=/z", "src=/api/v1/namespaces/a/pods/b/proxy/z");
        assert_eq!(VIEW.page(page), expected);
        for broken in ["<", "<a", "<a href", "<a href=", "<a href='", "<!--", "é<é"] {
            assert_eq!(VIEW.page(broken), broken);
        }
    }
}
