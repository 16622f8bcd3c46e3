//! Debian's Apache, with as little as a small page needs.

use std::fs;
use std::process::Child;

use anyhow::{Context, Result};

use crate::proof::scene::{SERVICE, Scene, add_web_user};

const DIRECTORY: &str = "/tmp/apache";
const MODULES: &str = "/usr/lib/apache2/modules";
/// Bytes of the page.
const PAGE: usize = 300;

/// Starts it on the service's address.
///
/// # Errors
/// When it does not come up.
pub fn start(scene: &Scene) -> Result<Child> {
    add_web_user()?;
    let pages = format!("{DIRECTORY}/pages");
    fs::create_dir_all(&pages).with_context(|| format!("cannot make {pages}"))?;
    let page = format!("<html><body>{}</body></html>\n", "x".repeat(PAGE));
    let file = format!("{DIRECTORY}/apache.conf");
    fs::write(format!("{pages}/index.html"), page)
        .and_then(|()| fs::write(&file, configuration(&pages)))
        .with_context(|| format!("cannot write {file}"))?;
    scene.start_program("apache2", &["-D", "FOREGROUND", "-f", &file])
}

fn configuration(pages: &str) -> String {
    format!(
        "ServerRoot {DIRECTORY}
ServerName service
Listen {SERVICE}
PidFile {DIRECTORY}/pid
ErrorLog {DIRECTORY}/errors
DefaultRuntimeDir {DIRECTORY}
LoadModule mpm_event_module {MODULES}/mod_mpm_event.so
LoadModule authz_core_module {MODULES}/mod_authz_core.so
LoadModule dir_module {MODULES}/mod_dir.so
StartServers 1
ServerLimit 1
ThreadsPerChild 25
MaxRequestWorkers 25
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 60
User www-data
Group www-data
DocumentRoot {pages}
DirectoryIndex index.html
"
    )
}
