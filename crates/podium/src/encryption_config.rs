//! Loading of `--encryption-provider-config`.

use crate::cli::EncryptionArgs;
use anyhow::{Context, Result, bail};
use encryption::Encryption;
use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::MetadataExt,
    path::Path,
};

/// Mode bits of the group and of others.
const GROUP_AND_OTHERS: u32 = 0o077;
/// Maximum size of the file.
const MAX_BYTES: u64 = 1 << 20;

/// Loads the EncryptionConfiguration; without a file, nothing is encrypted.
pub(crate) fn load(args: &EncryptionArgs) -> Result<Encryption> {
    if args.encryption_provider_config_automatic_reload {
        bail!(
            "--encryption-provider-config-automatic-reload is not supported: restart Podium after a change of \
             the encryption configuration (containers keep running)"
        );
    }
    let Some(path) = args.encryption_provider_config.as_deref() else { return Ok(Encryption::default()) };
    let context = || format!("--encryption-provider-config: encryption provider configuration file {path:?}");
    let text = read(path).with_context(context)?;
    Encryption::parse(&text).with_context(context)
}

/// Reads the file. Logs a warning if users other than root can read it.
fn read(path: &Path) -> Result<zeroize::Zeroizing<String>> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !is_private(&metadata) {
        tracing::warn!(
            file = %path.display(),
            "the encryption configuration holds keys and is readable by users other than root: run chown root and chmod 600",
        );
    }
    let mut text = zeroize::Zeroizing::new(String::with_capacity(usize::try_from(metadata.len()).unwrap_or(0)));
    if file.take(MAX_BYTES + 1).read_to_string(&mut text)? as u64 > MAX_BYTES {
        bail!("must not be larger than {MAX_BYTES} bytes");
    }
    Ok(text)
}

fn is_private(metadata: &fs::Metadata) -> bool {
    metadata.mode() & GROUP_AND_OTHERS == 0 && metadata.uid() == 0
}

/// Adds the remedy to the error of a store that has unreadable objects.
pub(crate) fn explain(error: store::OpenError) -> anyhow::Error {
    let is_unreadable = matches!(error, store::OpenError::Unreadable { .. });
    let error = anyhow::Error::from(error);
    if is_unreadable {
        return error.context(
            "failed to decrypt stored objects with the encryption configuration; add the provider and key of each object \
             to --encryption-provider-config (nothing was changed)",
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
    fn encryption_config_errors_name_the_file_without_keys() {
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
    fn automatic_reload_flag_is_rejected_by_name() {
        let args = EncryptionArgs { encryption_provider_config_automatic_reload: true, ..args(Path::new("x")) };
        let error = load(&args).unwrap_err().to_string();
        assert!(error.contains("--encryption-provider-config-automatic-reload is not supported"), "{error}");
    }

    #[test]
    fn file_readable_by_group_or_others_is_not_private() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, expected) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o644, false)] {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            let metadata = fs::metadata(file.path()).unwrap();
            // Only a file of root is private, also when another user runs the tests.
            assert_eq!(is_private(&metadata), expected && metadata.uid() == 0, "{mode:o}");
        }
    }
}
