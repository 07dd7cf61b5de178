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
    /// Opens the page, if there is to be one, and prints where.
    pub fn open(&self, headless: bool) -> Result<Option<Web>> {
        let Some(address) = self.web else { return Ok(None) };
        if headless {
            return Err(Error::Usage(
                "--web shows a window in a browser, and --headless asks for none".into(),
            ));
        }
        let web = Web::open(address, self.web_exposed)?;
        note!("note: open {}", web.url());
        if web.address().ip().is_loopback() {
            note!("note: from another machine, first run there: {}", tunnel(web.address().port()));
        }
        Ok(Some(web))
    }
}

/// Runs the window on the page.
pub fn run(web: Web, config: &Config, stop: &Stop, hook: Option<FrameHookDesc<'_>>) -> Result<Ended> {
    run_remote(Box::new(web), config, stop, hook)
}

/// The command that brings a port of this machine to another one.
pub fn tunnel(port: u16) -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("ssh -L {port}:localhost:{port} {name}")
}

/// Says how to see the window without a display.
pub fn advise(command: &str) {
    note!("note: to see it in a browser, run `{command}` here, and on your own machine `{}`", tunnel(8090));
}
