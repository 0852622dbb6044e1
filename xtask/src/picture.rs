//! A latency ladder as SVG: one line a series, percentiles to the right, time upwards on a log
//! scale.

use schedlab_model::Ns;
use std::fmt::Write;

/// One line of the picture.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// What it says beside its end.
    pub(crate) label: String,
    /// Colour, as SVG has it.
    pub(crate) colour: &'static str,
    /// The values at [`RUNGS`].
    pub(crate) values: Vec<Ns>,
}

/// The percentiles of the ladder, in thousandths; 100 000 is the maximum.
pub(crate) const RUNGS: &[u32] = &[50_000, 90_000, 95_000, 99_000, 99_500, 99_900, 99_990, 100_000];

const WIDTH: u32 = 860;
const HEIGHT: u32 = 430;
/// The inner rectangle: left, top, right, bottom.
const PLOT: (f64, f64, f64, f64) = (70.0, 74.0, 560.0, 372.0);
/// Bottom and top of the axis, in powers of ten of a nanosecond: 50 us to 100 ms.
const DECADES: (f64, f64) = (4.7, 8.0);

/// Draws the ladder.
pub(crate) fn ladder(title: &str, subtitle: &str, series: &[Series]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\" \
         font-size=\"13\" \
         fill=\"#222\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"20\" y=\"28\" font-size=\"17\" font-weight=\"600\">{}</text>\n\
         <text x=\"20\" y=\"50\" fill=\"#666\">{}</text>\n",
        escape(title),
        escape(subtitle)
    );
    axes(&mut svg);
    for one in series {
        let points: Vec<String> = one
            .values
            .iter()
            .enumerate()
            .map(|(rung, value)| format!("{:.1},{:.1}", x(rung), y(*value)))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2.5\" \
             stroke-linejoin=\"round\"/>",
            points.join(" "),
            one.colour
        );
    }
    labels(&mut svg, series);
    svg.push_str("</svg>\n");
    svg
}

fn axes(svg: &mut String) {
    for (nanos, name) in [
        (100_000, "0.1 ms"),
        (300_000, "0.3"),
        (1_000_000, "1 ms"),
        (3_000_000, "3"),
        (10_000_000, "10 ms"),
        (30_000_000, "30"),
        (100_000_000, "100 ms"),
    ] {
        let at = y(Ns(nanos));
        let _ = writeln!(
            svg,
            "<line x1=\"{}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#e3e3e3\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#666\">{name}</text>",
            PLOT.0,
            PLOT.2,
            PLOT.0 - 8.0,
            at + 4.5
        );
    }
    for (rung, percentile) in RUNGS.iter().enumerate() {
        let name = match percentile {
            100_000 => "max".to_owned(),
            p if p % 1000 == 0 => format!("p{}", p / 1000),
            p => format!("p{}", f64::from(*p) / 1000.0),
        };
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#666\">{name}</text>",
            x(rung),
            PLOT.3 + 22.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" fill=\"#666\">percentile of the response times that the clients \
         see</text>",
        PLOT.0,
        PLOT.3 + 44.0
    );
}

/// Names beside the ends of the lines, pushed apart where the ends meet.
fn labels(svg: &mut String, series: &[Series]) {
    const GAP: f64 = 19.0;
    let end = |one: &Series| one.values.last().map_or(PLOT.3, |value| y(*value));
    let mut order: Vec<(f64, &Series)> = series.iter().map(|one| (end(one), one)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    for at in 1..order.len() {
        order[at].0 = order[at].0.max(order[at - 1].0 + GAP);
    }
    let over = order.last().map_or(0.0, |last| (last.0 - PLOT.3).max(0.0));
    for (at, one) in order {
        let _ = writeln!(
            svg,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{}\" \
             stroke-opacity=\"0.4\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{}\">{}</text>",
            PLOT.2,
            end(one),
            PLOT.2 + 18.0,
            at - over,
            one.colour,
            PLOT.2 + 22.0,
            at - over + 4.5,
            one.colour,
            escape(&one.label)
        );
    }
}

fn x(rung: usize) -> f64 {
    PLOT.0 + 24.0 + (PLOT.2 - PLOT.0 - 24.0) * rung as f64 / (RUNGS.len() - 1) as f64
}

fn y(value: Ns) -> f64 {
    let part = ((value.0.max(1) as f64).log10() - DECADES.0) / (DECADES.1 - DECADES.0);
    PLOT.3 - (PLOT.3 - PLOT.1) * part.clamp(0.0, 1.0)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_is_slower_and_names_do_not_overlap() {
        assert!(y(Ns::from_ms(10)) < y(Ns::from_ms(1)));
        let one = |label: &str, ms: u64| Series {
            label: label.to_owned(),
            colour: "#000",
            values: vec![Ns::from_ms(ms); RUNGS.len()],
        };
        let svg = ladder("a < b", "", &[one("first", 10), one("second", 10)]);
        assert!(svg.contains("a &lt; b"));
        let heights: Vec<&str> =
            svg.lines().filter(|line| line.contains("first") || line.contains("second")).collect();
        assert_eq!(heights.len(), 2);
        assert_ne!(
            heights[0].split("<text").nth(1),
            heights[1].replace("second", "first").split("<text").nth(1)
        );
    }
}
