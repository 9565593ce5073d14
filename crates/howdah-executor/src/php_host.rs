//! What the file of a PHP program says about itself. The file is read and never executed: a file that is not PHP must
//! not run.

use std::path::Path;

use memchr::memmem;

/// The first bytes of an ELF file (elf(5)).
const ELF_MAGIC: &[u8] = b"\x7fELF";
/// The class of 64-bit files, at offset 4.
const CLASS_64: u8 = 2;
/// The type of the program header that names the dynamic linker.
const PT_INTERP: u32 = 3;
/// PHP's header, whose text every SAPI contains (`SAPI_PHP_VERSION_HEADER` in main/SAPI.h).
const VERSION_HEADER: &[u8] = b"X-Powered-By: PHP/";

/// The C library of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CLibrary {
    /// The GNU C library.
    Glibc,
    /// musl, as on Alpine Linux.
    Musl,
}

/// What a PHP program is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhpHost {
    /// PHP's version, such as `8.2.36`.
    pub version: String,
    /// The date of the module API, such as `20220829`.
    pub api: String,
    /// Whether this is the thread-safe build (ZTS).
    pub is_thread_safe: bool,
    /// Whether this is a debug build.
    pub is_debug: bool,
    /// The C library that it is linked with.
    pub c_library: CLibrary,
}

/// Why a file cannot host PHP for this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAHost {
    /// The file cannot be read.
    Unreadable(String),
    /// The file is not a program, or a program that does not contain PHP.
    NoPhp,
    /// The program is for another processor or for 32 bits.
    OtherMachine,
    /// The program is linked statically, so no library can be loaded into it.
    Static,
}

impl PhpHost {
    /// Reads the file of a program.
    ///
    /// # Errors
    /// The file cannot be read, or no library can be loaded into it.
    pub fn read(path: &Path) -> Result<PhpHost, NotAHost> {
        let bytes = std::fs::read(path).map_err(|why| NotAHost::Unreadable(why.to_string()))?;
        PhpHost::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Result<PhpHost, NotAHost> {
        if !bytes.starts_with(ELF_MAGIC) {
            return Err(NotAHost::NoPhp);
        }
        let (version, build) = version(bytes).zip(build(bytes)).ok_or(NotAHost::NoPhp)?;
        if bytes.get(4) != Some(&CLASS_64) || machine(bytes) != own_machine() {
            return Err(NotAHost::OtherMachine);
        }
        let interpreter = interpreter(bytes).ok_or(NotAHost::Static)?;
        let c_library = match memmem::find(interpreter, b"ld-musl").is_some() {
            true => CLibrary::Musl,
            false => CLibrary::Glibc,
        };
        Ok(PhpHost {
            version,
            api: build.api,
            is_thread_safe: build.is_thread_safe,
            is_debug: build.is_debug,
            c_library,
        })
    }

    /// Returns the name of the library for this program.
    pub fn library_name(&self) -> String {
        let threads = if self.is_thread_safe { "zts" } else { "nts" };
        let c_library = match self.c_library {
            CLibrary::Glibc => "",
            CLibrary::Musl => "-musl",
        };
        format!("howdah-php-{}-{threads}{c_library}.so", self.api)
    }

    /// Returns the series, such as `8.2`.
    pub fn series(&self) -> &str {
        let mut dots = self.version.match_indices('.').map(|(at, _)| at);
        let end = dots.nth(1).unwrap_or(self.version.len());
        &self.version[..end]
    }

    /// Returns the version's numbers, to compare them; zeros if the version has fewer than three.
    pub fn numbers(&self) -> [u32; 3] {
        version_numbers(&self.version).unwrap_or_default()
    }
}

/// Returns the numbers of a version such as `8.2.36-1+deb12u1`, or `None` if it has fewer than three.
pub fn version_numbers(version: &str) -> Option<[u32; 3]> {
    let mut parts = version.split('.').map(|part| {
        let end = part.find(|c: char| !c.is_ascii_digit());
        part[..end.unwrap_or(part.len())].parse().ok()
    });
    Some([parts.next()??, parts.next()??, parts.next()??])
}

/// The build of a PHP, which its extensions must match (`ZEND_MODULE_BUILD_ID` in Zend/zend_modules.h).
struct Build {
    api: String,
    is_thread_safe: bool,
    is_debug: bool,
}

/// Finds a string such as `API20220829,NTS` or `API20220829,TS,debug`.
fn build(bytes: &[u8]) -> Option<Build> {
    memmem::find_iter(bytes, b"\0API").find_map(|at| {
        let text = text_at(bytes, at + 1)?;
        let mut parts = text.strip_prefix("API")?.split(',');
        let api = parts.next()?;
        if api.len() != 8 || !api.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let is_thread_safe = match parts.next()? {
            "NTS" => false,
            "TS" => true,
            _ => return None,
        };
        Some(Build {
            api: api.to_owned(),
            is_thread_safe,
            is_debug: parts.next() == Some("debug"),
        })
    })
}

fn version(bytes: &[u8]) -> Option<String> {
    let at = memmem::find(bytes, VERSION_HEADER)?;
    let text = text_at(bytes, at + VERSION_HEADER.len())?;
    text.starts_with(|c: char| c.is_ascii_digit())
        .then(|| text.to_owned())
}

/// Returns the NUL-terminated text at this offset, if it is short and printable.
fn text_at(bytes: &[u8], at: usize) -> Option<&str> {
    let rest = bytes.get(at..)?;
    let rest = &rest[..rest.len().min(128)];
    let text = &rest[..memchr::memchr(0, rest)?];
    let is_printable = text.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(text).ok().filter(|_| is_printable)
}

/// Returns the processor that the file is for (`e_machine`).
fn machine(bytes: &[u8]) -> Option<[u8; 2]> {
    bytes.get(18..20)?.try_into().ok()
}

/// Returns the processor of this program.
fn own_machine() -> Option<[u8; 2]> {
    let own: u16 = if cfg!(target_arch = "aarch64") {
        183
    } else {
        62
    };
    Some(own.to_le_bytes())
}

/// Returns the path of the dynamic linker of a 64-bit file.
fn interpreter(bytes: &[u8]) -> Option<&[u8]> {
    let number = |at: usize, size: usize| {
        let field = bytes.get(at..at.checked_add(size)?)?;
        let mut whole = [0; 8];
        whole[..size].copy_from_slice(field);
        usize::try_from(u64::from_le_bytes(whole)).ok()
    };
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    (0..count).find_map(|index| {
        let at = table.checked_add(index * size)?;
        if number(at, 4)? != PT_INTERP as usize {
            return None;
        }
        let from = number(at.checked_add(8)?, 8)?;
        bytes.get(from..from.checked_add(number(at.checked_add(32)?, 8)?)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with a dynamic linker and these strings.
    fn program(class: u8, interpreter: Option<&str>, texts: &[&str]) -> Vec<u8> {
        let mut bytes = vec![0; 120];
        bytes[..4].copy_from_slice(ELF_MAGIC);
        bytes[4] = class;
        bytes[18..20].copy_from_slice(&own_machine().unwrap());
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        if let Some(path) = interpreter {
            bytes[64] = PT_INTERP as u8;
            bytes[64 + 8] = 120;
            bytes[64 + 32] = path.len() as u8;
            bytes.extend(path.as_bytes());
        }
        for text in texts {
            bytes.push(0);
            bytes.extend(text.as_bytes());
        }
        bytes.push(0);
        bytes
    }

    const GLIBC: Option<&str> = Some("/lib64/ld-linux-x86-64.so.2");
    const HEADER: &str = "X-Powered-By: PHP/8.5.0-dev";

    #[test]
    fn file_of_a_program_says_which_php_it_is() {
        let host = PhpHost::parse(&program(2, GLIBC, &[HEADER, "API20250925,TS,debug"])).unwrap();
        assert_eq!(host.version, "8.5.0-dev");
        assert_eq!((host.series(), host.numbers()), ("8.5", [8, 5, 0]));
        assert!(host.is_thread_safe && host.is_debug);
        assert_eq!(host.library_name(), "howdah-php-20250925-zts.so");
        let musl = Some("/lib/ld-musl-x86_64.so.1");
        let texts = ["API420240924,NTS", HEADER, "API20240924,NTS"];
        let host = PhpHost::parse(&program(2, musl, &texts)).unwrap();
        assert_eq!(host.library_name(), "howdah-php-20240924-nts-musl.so");
    }

    #[test]
    fn file_that_cannot_host_says_why() {
        let php = [HEADER, "API20220829,NTS"];
        for (bytes, why) in [
            (b"#!/bin/sh\nexec php8.2 \"$@\"\n".to_vec(), NotAHost::NoPhp),
            (program(2, GLIBC, &["API20220829,NTS"]), NotAHost::NoPhp),
            (program(2, GLIBC, &[HEADER]), NotAHost::NoPhp),
            (program(2, GLIBC, &[HEADER, "APIs,NTS"]), NotAHost::NoPhp),
            (program(1, GLIBC, &php), NotAHost::OtherMachine),
            (program(2, None, &php), NotAHost::Static),
            (program(2, GLIBC, &php)[..100].to_vec(), NotAHost::NoPhp),
        ] {
            assert_eq!(PhpHost::parse(&bytes), Err(why));
        }
    }
}
