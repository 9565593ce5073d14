//! `howdah init`: writes a configuration for the application in a directory, and a unit to start it. It asks no
//! questions: it makes the same choices as `howdah serve DIR`, with the same code.
//!
//! - `configuration`: the text of `howdah.toml`; `unit`: the text of `howdah.service`.

mod configuration;
mod unit;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use howdah_os::new_files;
use howdah_os::shell::shell_quoted;
use howdah_site::site::application::Application;
use howdah_site::site::config::SiteConfig;
use howdah_site::site::htaccess;
use howdah_site::site::recognise::{Recognised, application, recognise};

use super::check;
use crate::{exit, sys};
use howdah_config::arguments::InitArguments;

/// The directory for the sites of the server from Howdah's package.
const PACKAGED_SITES: &str = "/etc/howdah/sites.d";
/// The name of a directory of sites.
const SITES_DIRECTORY_NAME: &str = "sites.d";
/// The only name of a configuration that is never sent to clients.
const NEVER_SENT_FILE_NAME: &str = "howdah.toml";

/// The files that `howdah init` will write.
struct InitPlan {
    found: Recognised,
    htaccess: bool,
    /// The user that serves.
    user: ServiceUser,
    file: PathBuf,
    configuration: String,
    reader: ConfigurationReader,
}

/// The server that reads the configuration.
enum ConfigurationReader {
    /// A server of its own, with the path of its unit and the text of the unit.
    Server(PathBuf, String),
    /// A server of its own on a machine with Howdah's package, which contains a unit.
    Packaged,
    /// A server whose configuration, at this path, includes the file.
    Included(PathBuf),
}

/// Runs `howdah init`.
pub fn run(arguments: &InitArguments) -> ExitCode {
    let written = InitPlan::of(arguments).and_then(|plan| {
        plan.write(arguments.force)?;
        Ok(plan)
    });
    let plan = match written {
        Ok(plan) => plan,
        Err(why) => {
            eprintln!("howdah: {why}");
            return exit::failed();
        }
    };
    let main = match &plan.reader {
        ConfigurationReader::Included(main) => main,
        _ => &plan.file,
    };
    let mistakes = check::mistakes(main);
    let code = super::print_output(&plan.summary(arguments));
    if mistakes.is_empty() {
        return code;
    }
    for mistake in &mistakes {
        eprintln!("{mistake}");
    }
    eprintln!(
        "howdah: correct these mistakes before {} can be served",
        main.display()
    );
    exit::failed()
}

impl InitPlan {
    fn of(arguments: &InitArguments) -> Result<InitPlan, String> {
        let directory = &arguments.dir;
        let found = recognise(directory, SiteConfig::empty("", "")).map_err(|error| {
            let directory = directory.display();
            format!("cannot look for an application in {directory}: {error}")
        })?;
        refuse_several(directory, &found)?;
        let file = match &arguments.file {
            Some(file) => file.clone(),
            None => in_directory(directory, NEVER_SENT_FILE_NAME),
        };
        let root = path_text(&found.config.root)?;
        let own = directory_of(&file)?;
        refuse_in_the_root(&file, &own, &found.config.root)?;
        let user = service_user(&found.config.root);
        let decided = htaccess::decides(&found.config.root);
        let beside = found.config.root.strip_prefix(&own).ok();
        let is_framework = found.application == Application::Framework;
        let is_site = own
            .file_name()
            .is_some_and(|name| name == SITES_DIRECTORY_NAME);
        let wanted = configuration::ConfigurationInput {
            application: found.application,
            recognised: found.has_rules(),
            name: &found.config.name,
            root: match beside.and_then(Path::to_str) {
                Some("") => ".",
                Some(below) => below,
                None => root,
            },
            // The server cannot recognise the framework from the root, because the code lies beside the root.
            front_controller: (is_framework && decided != Some(true)).then_some("/index.php"),
            host: configuration::host(&found.config.name).filter(|_| is_site),
            htaccess: decided.is_some(),
            user: user.chosen.then_some(&*user.name),
            file: &shell_quoted(&file.to_string_lossy()),
        };
        let (configuration, place) = if is_site {
            let main = own.with_file_name(NEVER_SENT_FILE_NAME);
            (
                configuration::site_configuration(&wanted),
                ConfigurationReader::Included(main),
            )
        } else {
            let place = match Path::new(PACKAGED_SITES).is_dir() {
                true => ConfigurationReader::Packaged,
                false => unit_beside(&file, &own, directory, &user.name, &found.config)?,
            };
            (configuration::server_configuration(&wanted), place)
        };
        Ok(InitPlan {
            htaccess: decided.is_some(),
            found,
            user,
            file,
            configuration,
            reader: place,
        })
    }

    fn write(&self, force: bool) -> Result<(), String> {
        let mut files = vec![(&*self.file, &*self.configuration)];
        if let ConfigurationReader::Server(unit, text) = &self.reader {
            files.push((unit, text));
        }
        let paths: Vec<&Path> = files.iter().map(|(path, _)| *path).collect();
        new_files::refuse_existing(&paths, force)?;
        let group = match &self.reader {
            ConfigurationReader::Included(_) => None,
            _ => self.user.group,
        };
        new_files::write(&files, group, force)
    }

    fn summary(&self, arguments: &InitArguments) -> String {
        let found = &self.found;
        let mut text = found.sentence.clone() + "\n";
        if self.htaccess {
            text += "  its .htaccess files are applied, as in Apache: htaccess = \"on\"\n";
        }
        for below in &found.subfolders {
            text += &format!("  {below}\n");
        }
        for left_out in &found.not_inspected {
            text += &format!("  {left_out}\n");
        }
        let file = self.file.display();
        let word = shell_quoted(&self.file.to_string_lossy());
        match &self.reader {
            ConfigurationReader::Server(unit, _) => {
                let name = service(&found.config.name);
                text += &format!("wrote {file} and {}\n", unit.display());
                if directory_of(&self.file).is_ok_and(|own| own == found.config.root) {
                    text += "  Howdah never sends these files to clients; if another server serves this directory, use `-o FILE` to write them elsewhere\n";
                }
                text += &format!("next:\n  howdah serve --config {word}\nthen, as a service:\n");
                if self.user.is_missing {
                    text += &format!("  sudo useradd --system {}\n", self.user.name);
                }
                text += &format!(
                    "  sudo install -m 644 {} /etc/systemd/system/{name}.service\n  \
                     sudo systemctl enable --now {name}\n",
                    shell_quoted(&unit.to_string_lossy())
                );
            }
            ConfigurationReader::Packaged => {
                let name = shell_quoted(&service_name(&found.config.name));
                text += &format!(
                    "wrote {file}\nnext:\n  howdah serve --config {word}\n\
                     or, in the packaged server:\n  \
                     sudo howdah init {} -o {PACKAGED_SITES}/{name}.toml\n",
                    shell_quoted(&arguments.dir.to_string_lossy())
                );
            }
            ConfigurationReader::Included(main) => {
                let hosts = match configuration::host(&found.config.name) {
                    Some(_) => "",
                    None => " add its hosts to that file, then",
                };
                text += &format!(
                    "wrote {file}\nnext:{hosts}\n  \
                     sudo howdah check --config {}\n  \
                     sudo systemctl reload howdah\n",
                    main.display()
                );
            }
        }
        text
    }
}

/// Refuses a directory that has no page at its top and contains several applications, because that is hardly one site.
fn refuse_several(directory: &Path, found: &Recognised) -> Result<(), String> {
    let root = &found.config.root;
    let has_page = || ["index.html", "index.htm"].map(|name| root.join(name).exists());
    if found.application != Application::Files || has_page().contains(&true) {
        return Ok(());
    }
    let mut folders: Vec<PathBuf> = std::fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    let mut applications = Vec::new();
    for folder in folders {
        match application(&folder) {
            Ok(Application::Files) | Err(_) => {}
            Ok(found) => {
                let name = folder.file_name().unwrap_or_default();
                let folder = shell_quoted(&in_directory(directory, name).to_string_lossy());
                applications.push(format!("\n  howdah init {folder}   # {found}"));
            }
        }
    }
    match applications.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "there is no application in {} itself, but there are applications below it; choose one:{}",
            directory.display(),
            applications.concat()
        )),
    }
}

/// Refuses a file below the root that clients could read, unless it has the name that is never sent.
fn refuse_in_the_root(file: &Path, own: &Path, root: &Path) -> Result<(), String> {
    let is_safe = file
        .file_name()
        .is_some_and(|name| name == NEVER_SENT_FILE_NAME);
    match own.starts_with(root) && !is_safe {
        true => Err(format!(
            "clients could read {}, because it is in the directory that is served: name a file elsewhere, or a file called {NEVER_SENT_FILE_NAME}, which is never sent",
            file.display()
        )),
        false => Ok(()),
    }
}

/// Returns `name` in a directory, as a user would enter it.
fn in_directory(directory: &Path, name: impl AsRef<Path>) -> PathBuf {
    match directory == Path::new(".") {
        true => name.as_ref().to_owned(),
        false => directory.join(name),
    }
}

/// Returns the absolute path of the directory of a file.
fn directory_of(file: &Path) -> Result<PathBuf, String> {
    let cannot = |why: &str| format!("cannot write {}: {why}", file.display());
    let whole = std::path::absolute(file).map_err(|error| cannot(&error.to_string()))?;
    let directory = whole.parent().filter(|_| whole.file_name().is_some());
    directory
        .map(Path::to_owned)
        .ok_or_else(|| cannot("the path has no file name"))
}

/// Returns the path as text, if it can be written in TOML and in a unit.
fn path_text(path: &Path) -> Result<&str, String> {
    match path.to_str() {
        Some(text) if unit::can_name(path) => Ok(text),
        _ => Err(format!(
            "{}: a path in a configuration must be valid UTF-8 without control characters",
            path.display()
        )),
    }
}

/// The user of a server of its own.
struct ServiceUser {
    name: String,
    /// The group that may read the configuration, if root writes it.
    group: Option<u32>,
    /// Whether a server that root starts changes to this user.
    chosen: bool,
    is_missing: bool,
}

/// Returns the user that serves: the one who runs this command, or, for root, the owner of the application. For
/// applications that root owns, it is the user of other web servers.
fn service_user(root: &Path) -> ServiceUser {
    let own = sys::effective_account();
    let of = |account: sys::Account, group: Option<u32>| {
        let name = account.name.and_then(|name| name.into_string().ok());
        ServiceUser {
            name: name.unwrap_or_else(|| account.uid.to_string()),
            group,
            chosen: group.is_some(),
            is_missing: false,
        }
    };
    if own.uid != 0 {
        return of(own, None);
    }
    let owner = root.metadata().map_or(0, |meta| meta.uid());
    let account = match owner {
        0 => sys::web_user().and_then(sys::find_user),
        uid => sys::find_user(&uid.to_string()),
    };
    match account {
        Some(account) => {
            let group = account.gid;
            of(account, Some(group))
        }
        None => ServiceUser {
            name: "www-data".to_owned(),
            group: None,
            chosen: false,
            is_missing: true,
        },
    }
}

fn unit_beside(
    file: &Path,
    own: &Path,
    directory: &Path,
    user: &str,
    site: &SiteConfig,
) -> Result<ConfigurationReader, String> {
    let mut beside = file.to_owned();
    match file
        .extension()
        .is_some_and(|extension| extension == "toml")
    {
        true => beside.set_extension("service"),
        false => beside.add_extension("service"),
    };
    let program = std::env::current_exe()
        .map_err(|error| format!("cannot find the path of this program: {error}"))?;
    let configuration = own.join(file.file_name().unwrap_or_default());
    let directory = std::path::absolute(directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    let text = unit::unit_text(&unit::UnitInput {
        name: &site.name,
        program: path_text(&program)?,
        configuration: path_text(&configuration)?,
        directory: path_text(project_directory(&directory, &site.root))?,
        user,
    });
    Ok(ConfigurationReader::Server(beside, text))
}

/// Returns the directory that an application writes to. If its web directory was named, that is the parent directory.
fn project_directory<'d>(directory: &'d Path, root: &Path) -> &'d Path {
    let around = directory.parent().filter(|_| directory == root);
    let serves_it = |project: &&Path| {
        recognise(project, SiteConfig::empty("", "")).is_ok_and(|found| found.config.root == root)
    };
    around.filter(serves_it).unwrap_or(directory)
}

/// Returns the name of the service for a site with this name.
fn service(name: &str) -> String {
    format!("howdah-{}", service_name(name))
}

fn service_name(name: &str) -> String {
    let plain = |c: char| match c.is_ascii_alphanumeric() || "._-".contains(c) {
        true => c,
        false => '-',
    };
    name.chars().map(plain).collect()
}

#[cfg(test)]
mod tests;
