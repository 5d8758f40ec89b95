//! An exported page taken apart.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

/// An element of a page, with all text in it.
#[derive(Debug, Default)]
pub struct Element {
    pub name: String,
    pub attributes: HashMap<String, String>,
    pub text: String,
}

impl Element {
    pub fn has(&self, class: &str) -> bool {
        let classes = self.attributes.get("class");
        classes.is_some_and(|list| list.split(' ').any(|c| c == class))
    }
}

/// A page taken apart, more strictly than a browser does.
pub struct Page {
    pub bytes: String,
    /// In the order in which they begin.
    pub elements: Vec<Element>,
}

fn plain(text: &str) -> String {
    assert!(!text.contains(['<', '>']), "{text}");
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&amp;", "&")
}

impl Page {
    pub fn parse(bytes: &str) -> Self {
        const VOID: [&str; 2] = ["meta", "input"];
        let mut elements: Vec<Element> = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        let mut rest = bytes.strip_prefix("<!DOCTYPE html>").unwrap();
        while !rest.is_empty() {
            let raw = open.last().map(|&at| elements[at].name.clone());
            let raw = raw.filter(|name| name == "script" || name == "style");
            let end = match &raw {
                // Nothing but its own end ends it.
                Some(name) => rest.find(&format!("</{name}>")).unwrap(),
                None => rest.find('<').unwrap_or(rest.len()),
            };
            let text = match raw {
                Some(_) => rest[..end].to_owned(),
                None => plain(&rest[..end]),
            };
            for &at in &open {
                elements[at].text.push_str(&text);
            }
            rest = &rest[end..];
            if rest.is_empty() {
                break;
            }
            let (tag, behind) = rest[1..].split_once('>').unwrap();
            rest = behind;
            if let Some(name) = tag.strip_prefix('/') {
                let at = open.pop().unwrap();
                assert_eq!(elements[at].name, name, "closed in another order");
                continue;
            }
            let (name, mut attributes) = tag.split_once(' ').unwrap_or((tag, ""));
            let mut element = Element {
                name: name.to_owned(),
                ..Element::default()
            };
            while !attributes.is_empty() {
                let (name, value, behind) = match attributes.split_once("=\"") {
                    Some((name, behind)) if !name.contains(' ') => {
                        let (value, behind) = behind.split_once('"').unwrap();
                        (name, plain(value), behind)
                    }
                    _ => {
                        let (name, behind) = attributes.split_once(' ').unwrap_or((attributes, ""));
                        (name, String::new(), behind)
                    }
                };
                let known = |c: char| c.is_ascii_alphanumeric() || c == '-';
                assert!(name.chars().all(known), "attribute {name:?} of {tag:?}");
                let twice = element.attributes.insert(name.to_owned(), value);
                assert!(twice.is_none(), "{name} twice in {tag}");
                attributes = behind.trim_start();
            }
            if !VOID.contains(&name) {
                open.push(elements.len());
            }
            elements.push(element);
        }
        assert!(open.is_empty(), "left open: {open:?}");
        Self {
            bytes: bytes.to_owned(),
            elements,
        }
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.elements.iter().filter(move |e| e.name == name)
    }

    pub fn id(&self, id: &str) -> Option<&Element> {
        let is = |e: &&Element| e.attributes.get("id").is_some_and(|i| i == id);
        self.elements.iter().find(is)
    }

    pub fn data(&self) -> Value {
        serde_json::from_str(&self.id("data").unwrap().text).unwrap()
    }

    /// Nothing leads out of it, links lead somewhere, names are given once.
    pub fn check(&self) {
        let mut ids = HashSet::new();
        for element in &self.elements {
            if let Some(id) = element.attributes.get("id") {
                assert!(ids.insert(id), "{id} twice");
            }
        }
        for element in &self.elements {
            for (name, value) in &element.attributes {
                let inside = match name.as_str() {
                    "href" => value
                        .strip_prefix('#')
                        .is_some_and(|id| ids.contains(&id.to_owned())),
                    "src" | "srcset" | "action" | "data" | "poster" => false,
                    name => !name.starts_with("on"),
                };
                assert!(inside, "{name}={value:?} of {}", element.name);
            }
            let fetches = ["link", "img", "iframe", "object", "embed", "base", "form"];
            assert!(!fetches.contains(&element.name.as_str()), "{element:?}");
        }
        let is_policy = |e: &&Element| e.attributes.contains_key("http-equiv");
        let policy = &self.all("meta").find(is_policy).unwrap().attributes["content"];
        assert!(policy.starts_with("default-src 'none';"), "{policy}");
        for from_outside in ["url(", "@import", "import(", "fetch(", "XMLHttp"] {
            assert!(!self.bytes.contains(from_outside), "{from_outside}");
        }
        assert_eq!(self.all("script").count(), 2);
    }

    /// The rows of a list: what they are sorted by, and their text.
    pub fn rows(&self, list: &str) -> Vec<(Vec<f64>, &str)> {
        let start = self
            .elements
            .iter()
            .position(|e| e.has("panel") && e.attributes.get("id") == Some(&format!("p0-{list}")));
        let rows = &self.elements[start.unwrap() + 1..];
        rows.iter()
            .take_while(|e| !e.has("panel") && e.name != "section")
            .filter_map(|e| {
                let keys = e.attributes.get("data-k")?;
                let keys = keys.split(' ').map(|k| k.parse().unwrap()).collect();
                Some((keys, e.text.as_str()))
            })
            .collect()
    }
}
