//! The files of the page. They hold no data, so they need no token.

/// A file that is built into the program.
pub(crate) struct Asset {
    /// Its address.
    pub(crate) path: &'static str,
    /// Its type.
    pub(crate) kind: &'static str,
    /// Its content.
    pub(crate) text: &'static str,
}

/// Every file: what `ui/` gives (`cargo xtask ui`).
const ASSETS: [Asset; 3] = [
    Asset { path: "/", kind: "text/html", text: include_str!("../assets/index.html") },
    Asset {
        path: "/workbench.js",
        kind: "text/javascript",
        text: include_str!("../assets/workbench.js"),
    },
    Asset {
        path: "/workbench.css",
        kind: "text/css",
        text: include_str!("../assets/workbench.css"),
    },
];

/// Returns the file at an address, which has no query.
pub(crate) fn at(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}
