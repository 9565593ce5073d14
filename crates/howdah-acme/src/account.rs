//! The account at an authority: registered once and stored in the directory.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use instant_acme::{Account, ExternalAccountKey, NewAccount};

use crate::AcmeAuthority;
use crate::failure::AcmeFailure;
use crate::lease::LockWatcher;
use crate::nonce::nonce;
use crate::order::OrderContext;
use crate::store::{replace_file, store_failure};

impl OrderContext<'_> {
    pub(crate) fn account_path(&self, authority: &AcmeAuthority) -> std::path::PathBuf {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name: String = authority.url.chars().map(plain).collect();
        self.store.path("accounts", &name, ".json")
    }

    /// Returns the account in the directory, or registers one.
    ///
    /// Only one task of one host registers at a time, because an authority accepts the renewal of a
    /// certificate only from the account that ordered it (RFC 9773 §5): with two accounts, the
    /// certificates of one of them could not be replaced.
    pub(crate) async fn account(&self, authority: &AcmeAuthority) -> Result<Account, AcmeFailure> {
        match self.stored_account(authority).await? {
            Some(account) => Ok(account),
            None => self.register_alone(authority, None).await,
        }
    }

    /// Returns a replacement for an account that the authority no longer knows.
    ///
    /// Another order may have registered it already.
    pub(crate) async fn account_instead_of(
        &self,
        authority: &AcmeAuthority,
        unknown: &Account,
    ) -> Result<Account, AcmeFailure> {
        self.register_alone(authority, Some(unknown.id())).await
    }

    async fn stored_account(
        &self,
        authority: &AcmeAuthority,
    ) -> Result<Option<Account>, AcmeFailure> {
        let path = self.account_path(authority);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            // A new account must not be registered here, because it could not replace the certificates of the account
            // whose file is unreadable at the moment.
            Err(error) => return Err(store_failure("read", &path, &error)),
        };
        // A damaged file is worthless, and orders without `replaces` succeed.
        let Ok(credentials) = serde_json::from_slice(&text) else {
            return Ok(None);
        };
        let builder = Account::builder_with_http(Box::new(self.client.clone()));
        let account = builder.from_credentials(credentials).await;
        account.map(Some).map_err(self.failure_of(authority))
    }

    /// Registers an account unless the directory contains an account other than `unknown` by now.
    async fn register_alone(
        &self,
        authority: &AcmeAuthority,
        unknown: Option<&str>,
    ) -> Result<Account, AcmeFailure> {
        let _only_task = self.client.registration.lock().await;
        let path = self.account_path(authority);
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let lock = format!("account-{name}");
        let mut only_host = self.store.lock(&lock, &mut LockWatcher::default()).await?;
        let registering = async {
            match self.stored_account(authority).await? {
                Some(account) if Some(account.id()) != unknown => Ok(account),
                _ => self.register(authority).await,
            }
        };
        only_host.run_holding(registering).await
    }

    async fn register(&self, authority: &AcmeAuthority) -> Result<Account, AcmeFailure> {
        let builder = || Account::builder_with_http(Box::new(self.client.clone()));
        let mail = self
            .settings
            .email
            .as_ref()
            .map(|mail| format!("mailto:{mail}"));
        let contact: Vec<&str> = mail.as_deref().into_iter().collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let eab = match &authority.eab {
            Some((id, key)) => Some(external_key(authority, id, key)?),
            None => None,
        };
        let created = nonce!(builder().create(&new, authority.url.clone(), eab.as_ref()));
        let (account, credentials) = created.map_err(self.failure_of(authority))?;
        let text = serde_json::to_vec(&credentials).unwrap_or_default();
        replace_file(&self.account_path(authority), &text)?;
        Ok(account)
    }
}

fn external_key(
    authority: &AcmeAuthority,
    id: &str,
    key: &str,
) -> Result<ExternalAccountKey, AcmeFailure> {
    let decoded = decode_base64(key).ok_or_else(|| AcmeFailure::OrderRefused {
        authority: authority.name.clone(),
        why: "the key in acme.eab is not valid base64".to_owned(),
        retry_after: None,
    })?;
    Ok(ExternalAccountKey::new(id.to_owned(), &decoded))
}

/// Decodes base64 in either alphabet, padded or not, because authorities show the key in both.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim().trim_end_matches('=');
    let text = text.replace('+', "-").replace('/', "_");
    URL_SAFE_NO_PAD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_either_base64_is_read() {
        assert_eq!(decode_base64("aGk_aGk-").unwrap(), b"hi?hi>");
        assert_eq!(decode_base64("aGk/aGk+").unwrap(), b"hi?hi>");
        assert_eq!(decode_base64("aA==").unwrap(), b"h");
        assert!(decode_base64("a b").is_none());
    }

    #[test]
    fn account_key_that_is_not_base64_is_refused_by_the_name_of_its_option() {
        let authority = AcmeAuthority {
            name: "zerossl".to_owned(),
            url: "https://acme.zerossl.com/v2/DV90".to_owned(),
            eab: None,
        };
        assert!(external_key(&authority, "id", "aGk_aGk-").is_ok());
        let Err(AcmeFailure::OrderRefused { authority, why, .. }) =
            external_key(&authority, "id", "a b")
        else {
            panic!("a key that is not base64 was accepted");
        };
        assert_eq!(authority, "zerossl");
        assert!(why.contains("acme.eab"), "{why}");
    }
}
