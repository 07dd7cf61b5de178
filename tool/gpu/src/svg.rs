//! Draws SVG that follows the reader's light or dark theme and has tooltips, which chart libraries lack.

use std::path::Path;

use maud::{Markup, PreEscaped, html};

/// Classes: `paper` (background), `ink`, `soft`, `head` (text), `row` (strip), `a`, `b`, `hot` (bar), `line`.
const STYLE: &str = ".paper{fill:#fff}.ink{fill:#222}.head{font-weight:600}.soft{fill:#6b6b6b}.row{fill:#f1f2f4}.a{fill:#4c78a8}.b{fill:#7ba3cf}\
.hot{fill:#e4572e}.line{stroke:#999}@media(prefers-color-scheme:dark){.paper{fill:#16181d}.ink{fill:#e8e8e8}.soft{fill:#a0a0a0}\
.row{fill:#23262d}.a{fill:#5b8ec4}.b{fill:#3d6690}.hot{fill:#ff7a50}.line{stroke:#666}}";

pub fn is_name_of(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"))
}

pub fn picture(title: &str, size: [f64; 2], content: &Markup) -> Markup {
    let [width, height] = size;
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {} {}", n(width), n(height))) role="img"
            font-family="system-ui, sans-serif" font-size="12" {
            title { (title) }
            style { (PreEscaped(STYLE)) }
            rect.paper width="100%" height="100%" {}
            (content)
        }
    }
}

/// Draws a rectangle with its top left corner at `x` and `y`. `tip`, unless empty, is its tooltip.
pub fn bar(class: &str, [x, y]: [f64; 2], [width, height]: [f64; 2], tip: &str) -> Markup {
    html! {
        rect class=(class) x=(n(x)) y=(n(y)) width=(n(width.max(0.0))) height=(n(height)) {
            @if !tip.is_empty() { title { (tip) } }
        }
    }
}

pub fn text(class: &str, [x, y]: [f64; 2], words: &str) -> Markup {
    html! { text class=(class) x=(n(x)) y=(n(y)) { (words) } }
}

pub fn n(value: f64) -> String {
    format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns a round step for an axis: the smallest of 1, 2 or 5 times a power of ten that is at least `least`.
pub fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let parts = [1.0, 2.0, 5.0, 10.0];
    parts.into_iter().map(|part| part * power).find(|step| *step >= least * 0.999).unwrap_or(least)
}
