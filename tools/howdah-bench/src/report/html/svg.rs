//! Plots as SVG: a frame with ticks, lines, stacks, bands and dots. Colours and fonts come from the page's style sheet
//! by class, so a plot follows dark mode, light mode and print. This is not a drawing library: it provides what the
//! report's plots need. Text that comes from a server is escaped here.

use std::fmt::Write;

use super::scale::Scale;
use super::shell::escape;

/// The size of every plot in its own units. The page scales a plot to its column: on a desktop to a little more than
/// this many pixels, on a phone and on paper to a little less. Its text stays readable in all cases.
const PLOT_WIDTH: f64 = 440.0;
const PLOT_HEIGHT: f64 = 280.0;

/// A plot that is being drawn.
#[derive(Debug)]
pub struct Plot {
    x: Scale,
    y: Scale,
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
    body: String,
    alt: String,
}

impl Plot {
    /// Creates an empty frame; `alt` describes the plot for readers who cannot see it.
    pub fn new(x: Scale, y: Scale, alt: &str) -> Plot {
        Plot {
            x,
            y,
            left: 72.0,
            top: 12.0,
            right: PLOT_WIDTH - 14.0,
            bottom: PLOT_HEIGHT - 40.0,
            body: String::new(),
            alt: escape(alt),
        }
    }

    /// Returns the horizontal position of a value.
    pub fn at_x(&self, value: f64) -> f64 {
        self.left + self.x.place(value) * (self.right - self.left)
    }

    /// Returns the vertical position of a value.
    pub fn at_y(&self, value: f64) -> f64 {
        self.bottom - self.y.place(value) * (self.bottom - self.top)
    }

    /// Draws horizontal grid lines with numbers, and the axis's name above them.
    pub fn y_axis(&mut self, name: &str, label: impl Fn(f64) -> String) {
        for tick in self.y.ticks(5) {
            let y = self.at_y(tick);
            let _ = write!(
                self.body,
                "<path class=\"grid\" d=\"M{:.1} {y:.1}H{:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{}</text>",
                self.left,
                self.right,
                self.left - 6.0,
                y + 4.0,
                escape(&label(tick))
            );
        }
        let _ = write!(
            self.body,
            "<text class=\"axis\" transform=\"translate(11 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            (self.top + self.bottom) / 2.0,
            escape(name)
        );
    }

    /// Draws numbers along the bottom, and the axis's name below them.
    pub fn x_axis(&mut self, name: &str, label: impl Fn(f64) -> String) {
        let ticks = self.x.ticks(6);
        self.x_ticks(name, &ticks, label);
    }

    /// Draws the horizontal axis with numbers at these values.
    pub fn x_ticks(&mut self, name: &str, ticks: &[f64], label: impl Fn(f64) -> String) {
        // The end of the last label, so that labels do not overlap.
        let mut taken = f64::NEG_INFINITY;
        for tick in ticks {
            let x = self.at_x(*tick);
            let text = label(*tick);
            // 12 px of a proportional font: a digit is nearly 7 px.
            let half = text.chars().count() as f64 * 3.5;
            let middle = x.min(self.right + 12.0 - half);
            let _ = write!(
                self.body,
                "<path class=\"grid\" d=\"M{x:.1} {:.1}V{:.1}\"/>",
                self.bottom,
                self.bottom + 4.0
            );
            if middle - half < taken + 6.0 {
                continue;
            }
            taken = middle + half;
            let _ = write!(
                self.body,
                "<text class=\"tick\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                self.bottom + 17.0,
                escape(&text)
            );
        }
        let _ = write!(
            self.body,
            "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            (self.left + self.right) / 2.0,
            self.bottom + 34.0,
            escape(name)
        );
    }

    /// Draws a line through points in order; a point that is not finite interrupts it.
    pub fn line(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut path = String::new();
        let mut pen_down = false;
        for (x, y) in points {
            if !(x.is_finite() && y.is_finite()) {
                pen_down = false;
                continue;
            }
            let _ = write!(
                path,
                "{}{:.1} {:.1}",
                if pen_down { 'L' } else { 'M' },
                self.at_x(*x),
                self.at_y(*y)
            );
            pen_down = true;
        }
        let _ = write!(self.body, "<path class=\"line {class}\" d=\"{path}\"/>");
    }

    /// Fills the area between two lines over the same horizontal values.
    pub fn area(&mut self, class: &str, xs: &[f64], low: &[f64], high: &[f64]) {
        let mut path = String::new();
        for (i, (x, y)) in xs.iter().zip(high).enumerate() {
            let pen = if i == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{pen}{:.1} {:.1}", self.at_x(*x), self.at_y(*y));
        }
        for (x, y) in xs.iter().zip(low).rev() {
            let _ = write!(path, "L{:.1} {:.1}", self.at_x(*x), self.at_y(*y));
        }
        let _ = write!(self.body, "<path class=\"area {class}\" d=\"{path}Z\"/>");
    }

    /// Draws a bar between two values of each axis.
    pub fn bar(&mut self, class: &str, x: (f64, f64), y: (f64, f64), title: &str) {
        let (left, right) = (self.at_x(x.0), self.at_x(x.1));
        let (low, high) = (self.at_y(y.0), self.at_y(y.1));
        let _ = write!(
            self.body,
            "<rect class=\"area {class}\" x=\"{left:.1}\" y=\"{high:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
            // Half a pixel wider, because rounding would leave gaps between neighbours.
            (right - left + 0.5).max(0.5),
            (low - high).max(0.0),
            escape(title)
        );
    }

    /// Draws a dot with a tooltip.
    pub fn dot(&mut self, class: &str, x: f64, y: f64, title: &str) {
        let _ = write!(
            self.body,
            "<circle class=\"dot {class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"><title>{}</title></circle>",
            self.at_x(x),
            self.at_y(y),
            escape(title)
        );
    }

    /// Writes a word beside a position, inside the frame.
    pub fn note(&mut self, class: &str, x: f64, y: f64, text: &str) {
        let at = self.at_x(x);
        let (anchor, at) = if at > (self.left + self.right) / 2.0 {
            ("end", at - 8.0)
        } else {
            ("start", at + 8.0)
        };
        let _ = write!(
            self.body,
            "<text class=\"note {class}\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            (self.at_y(y) - 7.0).max(self.top + 10.0),
            escape(text)
        );
    }

    /// Draws a horizontal line across the frame.
    pub fn horizontal(&mut self, class: &str, y: f64) {
        let y = self.at_y(y);
        let _ = write!(
            self.body,
            "<path class=\"line {class}\" d=\"M{:.1} {y:.1}H{:.1}\"/>",
            self.left, self.right
        );
    }

    /// Draws a vertical line up the frame.
    pub fn vertical(&mut self, class: &str, x: f64) {
        let x = self.at_x(x);
        let _ = write!(
            self.body,
            "<path class=\"line {class}\" d=\"M{x:.1} {:.1}V{:.1}\"/>",
            self.top, self.bottom
        );
    }

    /// Returns the finished drawing.
    pub fn finish(self) -> String {
        format!(
            "<svg viewBox=\"0 0 {PLOT_WIDTH} {PLOT_HEIGHT}\" role=\"img\" aria-label=\"{}\">{}</svg>\n",
            self.alt, self.body
        )
    }
}
