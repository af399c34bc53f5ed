//! `--encryption-provider-config`: how objects are encrypted on the disk.

use crate::cli::EncryptionArgs;
use anyhow::{Context, Result, bail};
use encryption::Encryption;
use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::MetadataExt,
    path::Path,
};

/// What others than the owner may do with a file.
const OTHERS: u32 = 0o077;
/// A configuration is a page of text.
const MAX_BYTES: u64 = 1 << 20;

/// Reads the file; without one, nothing is encrypted.
pub(crate) fn load(args: &EncryptionArgs) -> Result<Encryption> {
    if args.encryption_provider_config_automatic_reload {
        bail!(
            "--encryption-provider-config-automatic-reload is not supported: restart Podium when the encryption \
             configuration has changed (containers go on meanwhile)"
        );
    }
    let Some(path) = args.encryption_provider_config.as_deref() else { return Ok(Encryption::default()) };
    let what = || format!("--encryption-provider-config: encryption provider configuration file {path:?}");
    let text = read(path).with_context(what)?;
    Encryption::parse(&text).with_context(what)
}

/// Warns if others than root can read the keys.
fn read(path: &Path) -> Result<zeroize::Zeroizing<String>> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !is_private(&metadata) {
        tracing::warn!(
            file = %path.display(),
            "the encryption configuration holds keys and is readable by others than root: run chown root and chmod 600",
        );
    }
    let mut text = zeroize::Zeroizing::new(String::with_capacity(usize::try_from(metadata.len()).unwrap_or(0)));
    if file.take(MAX_BYTES + 1).read_to_string(&mut text)? as u64 > MAX_BYTES {
        bail!("it has more than {MAX_BYTES} bytes");
    }
    Ok(text)
}

fn is_private(metadata: &fs::Metadata) -> bool {
    metadata.mode() & OTHERS == 0 && metadata.uid() == 0
}

/// What to do when stored objects cannot be read.
pub(crate) fn explained(error: store::OpenError) -> anyhow::Error {
    let is_unreadable = matches!(error, store::OpenError::Unreadable { .. });
    let error = anyhow::Error::from(error);
    if is_unreadable {
        return error.context(
            "the store holds objects that the encryption configuration cannot read; add the provider and key that each is \
             stored with to --encryption-provider-config (nothing was changed)",
        );
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn args(path: &Path) -> EncryptionArgs {
        EncryptionArgs {
            encryption_provider_config: Some(path.to_owned()),
            encryption_provider_config_automatic_reload: false,
        }
    }

    #[test]
    fn errors_name_the_file_and_show_no_keys() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("encryption.yaml");
        let refused = |text: &str| {
            fs::write(&path, text).unwrap();
            format!("{:#}", load(&args(&path)).unwrap_err())
        };
        let empty = refused("");
        assert!(empty.contains("encryption.yaml\": the configuration is empty"), "{empty}");
        let broken = refused("kind: EncryptionConfiguration\nsecret: c2VjcmV0\nsecret: c2VjcmV0\n");
        assert!(broken.contains("line 3") && !broken.contains("c2VjcmV0"), "{broken}");
        let missing = format!("{:#}", load(&args(Path::new("/nowhere"))).unwrap_err());
        assert!(missing.contains("\"/nowhere\": No such file"), "{missing}");
    }

    #[test]
    fn automatic_reload_is_refused_by_its_name() {
        let args = EncryptionArgs { encryption_provider_config_automatic_reload: true, ..args(Path::new("x")) };
        let error = load(&args).unwrap_err().to_string();
        assert!(error.contains("--encryption-provider-config-automatic-reload is not supported"), "{error}");
    }

    #[test]
    fn file_that_others_can_read_is_not_private() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, expected) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o644, false)] {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            let metadata = fs::metadata(file.path()).unwrap();
            // Whoever runs the tests, root alone counts.
            assert_eq!(is_private(&metadata), expected && metadata.uid() == 0, "{mode:o}");
        }
    }
}
