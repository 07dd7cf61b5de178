//! `--web`: the window in a browser.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::Args;
use wavefield_gpu::{Error, Result, note};
use wavefield_run::parse;
use wavefield_window::web::Web;

use super::help;

#[derive(Args)]
pub(super) struct WebArgs {
    /// Show the window in a browser: serve it as a page at this address [default address:
    /// 127.0.0.1:8090; a single number is the port]. Prints the page's URL. On another machine,
    /// `ssh -L 127.0.0.1:8090:127.0.0.1:8090 HOST` brings it there.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "8090", value_parser = parse::address, help_heading = help::HOW)]
    web: Option<SocketAddr>,
    /// Let --web listen on an address that other machines can reach. Nothing is encrypted: whoever reads along on
    /// the network sees the pictures and the token, and can steer.
    #[arg(long, requires = "web", help_heading = help::HOW)]
    web_exposed: bool,
}

impl WebArgs {
    pub(super) fn open(&self, headless: bool) -> Result<Option<Web>> {
        let Some(address) = self.web else { return Ok(None) };
        if headless {
            return Err(Error::Usage(
                "--web shows a window in a browser, and --headless asks for none: leave one of them out"
                    .into(),
            ));
        }
        let web = Web::open(address, self.web_exposed)?;
        if web.address().ip().is_loopback() {
            note!("note: open {}", web.url());
            note!("note: from another machine, first run there: {}", tunnel(web.address()));
        } else {
            note!("note: open {} (the connection is not encrypted)", web.url());
        }
        Ok(Some(web))
    }
}

/// The default address of `--web`.
const USUAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8090);

/// Returns the `ssh` command that makes the page reachable from another machine. It names the address,
/// because `localhost` may resolve to `::1`, where another user may listen.
fn tunnel(address: SocketAddr) -> String {
    format!("ssh -L {address}:{address} {}", wavefield_window::web::host_name())
}

pub(super) fn advise(command: &str) {
    note!("note: to see it in a browser, run `{command}` here, and on your own machine `{}`", tunnel(USUAL));
}
