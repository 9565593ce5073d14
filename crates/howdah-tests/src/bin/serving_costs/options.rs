//! The command line options.

const HELP: &str = "\
serving_costs [FIGURE]... [--rounds N] [--seconds N] [--children N]

  cost      system calls (strace) and context switches per hello request
  opcache   CPU time of PHP for hello.php and WordPress by opcache's settings, and in mode cgi
  memory    resident memory: a PHP child, 10 000 idle connections

Without a figure: all. Build the release binaries first (`make build`).
";

/// The figures that can be requested.
const FIGURES: [&str; 3] = ["cost", "opcache", "memory"];

/// The parsed command line.
pub struct Options {
    figures: Vec<String>,
    /// The number of rounds of `opcache`.
    pub rounds: usize,
    /// The length of one run in seconds.
    pub seconds: u32,
    /// The number of PHP processes of Howdah and of php-fpm.
    pub children: usize,
}

impl Options {
    /// Parses the command line. Exits with a message when it is wrong.
    pub fn read() -> Options {
        let mut options = Options {
            figures: Vec::new(),
            rounds: 5,
            seconds: 4,
            children: 8,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut number = || {
                words
                    .next()
                    .and_then(|n| n.parse().ok())
                    .unwrap_or_else(|| {
                        eprintln!("serving_costs: {word} wants a number");
                        std::process::exit(2)
                    })
            };
            match word.as_str() {
                "--rounds" => options.rounds = number(),
                "--seconds" => options.seconds = u32::try_from(number()).unwrap_or(u32::MAX),
                "--children" => options.children = number(),
                "--help" | "-h" => {
                    print!("{HELP}");
                    std::process::exit(0)
                }
                name if FIGURES.contains(&name) => {
                    options.figures.push(word);
                }
                other => {
                    eprintln!("serving_costs: no figure or option {other:?}\n\n{HELP}");
                    std::process::exit(2)
                }
            }
        }
        options
    }

    /// Returns whether a figure was requested.
    pub fn wants(&self, name: &str) -> bool {
        self.figures.is_empty() || self.figures.iter().any(|s| s == name)
    }
}
