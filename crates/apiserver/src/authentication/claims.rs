//! JSON web tokens with ES256: signing, checking signatures, publishing the key. No meaning is
//! given to the claims here.

use api::Value;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    UnparsedPublicKey,
};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
use sha2::Digest;

use crate::Error;

/// The DER that precedes a P-256 point in a SubjectPublicKeyInfo.
const P256_INFO: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

pub(crate) struct SigningKey {
    pair: EcdsaKeyPair,
    key_id: String,
}

impl SigningKey {
    pub fn from_pem(pem: &str) -> Result<SigningKey, Error> {
        let wrong =
            |problem: String| Error::Configuration(format!("service account key: {problem}"));
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|problem| wrong(problem.to_string()))?;
        let pair = EcdsaKeyPair::from_pkcs8(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            der.secret_pkcs8_der(),
            &SystemRandom::new(),
        )
        .map_err(|problem| wrong(problem.to_string()))?;
        let mut info = P256_INFO.to_vec();
        info.extend_from_slice(pair.public_key().as_ref());
        let key_id = URL_SAFE_NO_PAD.encode(sha2::Sha256::digest(&info));
        Ok(SigningKey { pair, key_id })
    }

    pub fn sign(&self, claims: &Value) -> Option<String> {
        let header = api::document!({"alg": "ES256", "kid": self.key_id});
        let content = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header.to_json()),
            URL_SAFE_NO_PAD.encode(claims.to_json())
        );
        let signature = self
            .pair
            .sign(&SystemRandom::new(), content.as_bytes())
            .ok()?;
        Some(format!(
            "{content}.{}",
            URL_SAFE_NO_PAD.encode(signature.as_ref())
        ))
    }

    /// The claims of a token that this key signed.
    pub fn open(&self, token: &str) -> Option<Value> {
        let (content, signature) = token.rsplit_once('.')?;
        let (header, claims) = content.split_once('.')?;
        let header = Value::from_json(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        if header.str_at(&["alg"]) != "ES256" {
            return None;
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref())
            .verify(content.as_bytes(), &signature)
            .ok()?;
        Value::from_json(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
    }

    /// The public half as a JSON web key set.
    pub fn key_set(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let (x, y) = point[1..].split_at(32);
        api::document!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        }]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_unchanged_tokens_open() {
        let key = || {
            let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
            SigningKey::from_pem(&pair.serialize_pem()).unwrap()
        };
        let (ours, theirs) = (key(), key());
        let claims = api::document!({"sub": "me"});
        let token = ours.sign(&claims).unwrap();
        assert_eq!(ours.open(&token), Some(claims));
        assert_eq!(theirs.open(&token), None);
        let forged = token.replacen('.', ".e30", 1);
        assert_eq!(ours.open(&forged), None);
        for broken in ["", ".", "..", "a.b.c"] {
            assert_eq!(ours.open(broken), None);
        }
    }
}
