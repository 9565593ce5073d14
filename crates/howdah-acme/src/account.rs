//! The account at an authority: made once, kept in the directory.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use instant_acme::{Account, ExternalAccountKey, NewAccount};

use crate::Authority;
use crate::failure::Failure;
use crate::nonce::nonce;
use crate::order::Orders;
use crate::store::replace;

impl Orders<'_> {
    pub(crate) fn account_path(&self, authority: &Authority) -> std::path::PathBuf {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name: String = authority.url.chars().map(plain).collect();
        self.store.path("accounts", &name, ".json")
    }

    /// The account that is kept, or a new one.
    pub(crate) async fn account(&self, authority: &Authority) -> Result<Account, Failure> {
        let failed = self.failed(authority);
        let builder = || Account::builder_with_http(Box::new(self.client.clone()));
        let path = self.account_path(authority);
        if let Some(known) = std::fs::read(&path)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
        {
            return builder().from_credentials(known).await.map_err(failed);
        }
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
        let (account, credentials) = created.map_err(failed)?;
        let text = serde_json::to_vec(&credentials).unwrap_or_default();
        replace(&path, &text)?;
        Ok(account)
    }
}

fn external_key(authority: &Authority, id: &str, key: &str) -> Result<ExternalAccountKey, Failure> {
    let decoded = decode_base64(key).ok_or_else(|| Failure::OrderRefused {
        authority: authority.name.clone(),
        why: "the key in acme.eab is no base64".to_owned(),
        retry_after: None,
    })?;
    Ok(ExternalAccountKey::new(id.to_owned(), &decoded))
}

/// Base64 in either alphabet, padded or not: authorities show the key in both.
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
}
