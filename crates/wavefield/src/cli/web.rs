//! `--web`: the window in a browser.

use std::net::SocketAddr;

use clap::Args;
use wavefield_base::{Error, Result, note};
use wavefield_engine::{Config, Ended, FrameHookDesc, Stop};
use wavefield_web::Web;
use wavefield_window::run_remote;

use super::{help, parse};

#[derive(Args)]
pub struct WebArgs {
    /// Show the window in a browser: serve it as a page at this address [default address:
    /// 127.0.0.1:8090; a single number is the port]. Prints the page's URL. On another machine,
    /// `ssh -L 8090:localhost:8090 HOST` brings it there.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "8090", value_parser = parse::address, help_heading = help::HOW)]
    web: Option<SocketAddr>,
    /// Let --web listen on an address that other machines can reach. Nothing is encrypted: whoever reads along on
    /// the network sees the pictures and the token, and can steer.
    #[arg(long, requires = "web", help_heading = help::HOW)]
    web_exposed: bool,
}

impl WebArgs {
    /// Whether there is to be a page.
    pub fn is_given(&self, headless: bool) -> Result<bool> {
        match self.web {
            Some(_) if headless => Err(Error::Usage(
                "--web shows a window in a browser, and --headless asks for none: leave one of them out"
                    .into(),
            )),
            web => Ok(web.is_some()),
        }
    }

    /// Runs the window on a page, and prints where that is.
    pub fn run(&self, config: &Config, stop: &Stop, hook: Option<FrameHookDesc<'_>>) -> Result<Ended> {
        let web = Web::open(self.web.unwrap_or(SocketAddr::from(([127, 0, 0, 1], PORT))), self.web_exposed)?;
        if web.address().ip().is_loopback() {
            note!("note: open {}", web.url());
            note!("note: from another machine, first run there: {}", tunnel(web.address().port()));
        } else {
            note!("note: open {} (the connection is not encrypted)", web.url());
        }
        run_remote(Box::new(web), config, stop, hook)
    }
}

const PORT: u16 = 8090;

/// The command that brings a port of this machine to another one.
fn tunnel(port: u16) -> String {
    format!("ssh -L {port}:localhost:{port} {}", wavefield_web::host_name())
}

/// Says how to see the window without a display.
pub fn advise(command: &str) {
    note!("note: to see it in a browser, run `{command}` here, and on your own machine `{}`", tunnel(PORT));
}
