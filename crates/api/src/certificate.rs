//! The Kubernetes user in the subject of an X.509 certificate or certificate signing request.

use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// User name and groups in a certificate's subject: its common name and its organizations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectUser {
    /// The common name.
    pub name: String,
    /// The organizations, in the subject's order.
    pub groups: Vec<String>,
}

/// Error for a subject that identifies no user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    /// No common name.
    #[error("subject has no common name")]
    MissingCommonName,
    /// Several common names.
    #[error("subject has more than one common name")]
    SeveralCommonNames,
    /// An empty common name.
    #[error("subject has an empty common name")]
    EmptyCommonName,
    /// An attribute is not an ASCII or UTF-8 string.
    #[error("subject {0} is not an ASCII or UTF-8 string")]
    Encoding(&'static str),
    /// An attribute contains control characters.
    #[error("subject {0} contains control characters")]
    ControlCharacters(&'static str),
}

/// Parses the user in a subject. Authentication, approval, signing and admission all use this function: if they parsed
/// subjects differently, a request could be approved for one user and its certificate accepted as another.
///
/// # Errors
/// When the subject does not have exactly one common name, when that is empty, or when the common name or an
/// organization is not a string in ASCII or UTF-8. Go uses the last of several common names.
pub fn subject_user(subject: &X509Name<'_>) -> Result<SubjectUser, SubjectError> {
    let mut names = subject.iter_common_name();
    let name = match (names.next(), names.next()) {
        (Some(name), None) => text(name, "common name")?,
        (None, _) => return Err(SubjectError::MissingCommonName),
        (Some(_), Some(_)) => return Err(SubjectError::SeveralCommonNames),
    };
    if name.is_empty() {
        return Err(SubjectError::EmptyCommonName);
    }
    let groups = subject.iter_organization().map(|o| text(o, "organization")).collect::<Result<_, _>>()?;
    Ok(SubjectUser { name, groups })
}

fn text(attribute: &AttributeTypeAndValue<'_>, name: &'static str) -> Result<String, SubjectError> {
    let text = attribute.as_str().map_err(|_| SubjectError::Encoding(name))?;
    if text.chars().any(char::is_control) {
        return Err(SubjectError::ControlCharacters(name));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use x509_parser::prelude::FromDer;

    const COMMON_NAME: u8 = 3;
    const ORGANIZATION: u8 = 10;
    const UTF8: u8 = 0x0c;
    const PRINTABLE: u8 = 0x13;
    const BMP: u8 = 0x1e;

    fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut der = vec![tag, u8::try_from(content.len()).unwrap()];
        der.extend_from_slice(content);
        der
    }

    fn attribute(kind: u8, tag: u8, value: &[u8]) -> Vec<u8> {
        tagged(0x30, &[tagged(6, &[0x55, 4, kind]), tagged(tag, value)].concat())
    }

    /// Attribute type, string type and value.
    type Attribute<'a> = (u8, u8, &'a [u8]);

    /// Each inner list is one relative distinguished name.
    fn user(subject: &[&[Attribute<'_>]]) -> Result<SubjectUser, SubjectError> {
        let rdn = |all: &&[Attribute<'_>]| {
            let all: Vec<Vec<u8>> = all.iter().map(|(kind, tag, value)| attribute(*kind, *tag, value)).collect();
            tagged(0x31, &all.concat())
        };
        let der = tagged(0x30, &subject.iter().map(rdn).collect::<Vec<_>>().concat());
        subject_user(&X509Name::from_der(&der).unwrap().1)
    }

    #[test]
    fn subject_with_one_common_name_is_a_user() {
        let organization: Attribute<'_> = (ORGANIZATION, PRINTABLE, b"devs");
        let expected = SubjectUser { name: "alice".to_owned(), groups: vec!["devs".to_owned()] };
        assert_eq!(user(&[&[organization], &[(COMMON_NAME, UTF8, b"alice")]]), Ok(expected.clone()));
        assert_eq!(user(&[&[organization, (COMMON_NAME, UTF8, b"alice")]]), Ok(expected));
    }

    #[test]
    fn ambiguous_or_unreadable_subject_is_refused() {
        let alice: Attribute<'_> = (COMMON_NAME, UTF8, b"alice");
        let manager: Attribute<'_> = (COMMON_NAME, UTF8, b"system:kube-controller-manager");
        let wide: Attribute<'_> = (COMMON_NAME, BMP, b"\0a");
        let subjects: [&[&[Attribute<'_>]]; 10] = [
            &[],
            &[&[alice], &[manager]],
            &[&[manager], &[alice]],
            &[&[alice, manager]],
            &[&[alice], &[alice]],
            &[&[wide], &[alice]],
            &[&[wide]],
            &[&[(COMMON_NAME, UTF8, b"")]],
            &[&[(COMMON_NAME, UTF8, b"\xff")]],
            &[&[alice], &[(ORGANIZATION, BMP, b"\0a")]],
        ];
        for subject in subjects {
            assert!(user(subject).is_err(), "{subject:?}");
        }
        assert!(user(&[&[(COMMON_NAME, UTF8, b"alice\0")]]).is_err());
    }
}
