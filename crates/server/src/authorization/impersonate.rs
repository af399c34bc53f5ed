//! Acting as somebody else (`kubectl --as`): by headers, and only as whom one may
//! (`k8s.io/apiserver/pkg/endpoints/filters/impersonation`).

use super::{Attributes, ResourceAbout, require};
use crate::{
    ApiServer, UserInfo,
    audit::Trail,
    status::ApiError,
    user::{self, ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED},
};
use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// The user that a request acts as; its headers no longer speak of it then.
pub(crate) async fn impersonate(
    server: &ApiServer,
    requestor: UserInfo,
    headers: &mut HeaderMap,
    trail: &Trail,
) -> Result<UserInfo, ApiError> {
    let Some(asked) = Asked::take(headers) else { return Ok(requestor) };
    if asked.user.is_empty() {
        return Err(ApiError::bad_request(format!("requested {} without impersonating a user", asked.describe())));
    }
    if !requestor.is_master() {
        server.authorizer.settled().await;
        for about in asked.abouts() {
            require(server, &requestor, &Attributes::to("impersonate", about))?;
        }
    }
    let user = asked.user();
    trail.impersonated(&user);
    Ok(user)
}

/// Whom the headers ask for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    user: String,
    groups: Vec<String>,
    uid: String,
    /// Key and value, in the order of the keys.
    extra: Vec<(String, String)>,
}

impl Asked {
    fn take(headers: &mut HeaderMap) -> Option<Self> {
        let names: Vec<HeaderName> =
            headers.keys().filter(|n| n.as_str().starts_with("impersonate-")).cloned().collect();
        let mut asked = Self::default();
        for name in names {
            let values: Vec<String> =
                headers.get_all(&name).iter().map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).collect();
            let first = || values.first().cloned().unwrap_or_default();
            match name.as_str() {
                USER => asked.user = first(),
                UID => asked.uid = first(),
                GROUP => asked.groups = values,
                other => {
                    let Some(key) = other.strip_prefix(EXTRA) else { continue };
                    let key = percent_decode_str(key).decode_utf8_lossy().into_owned();
                    asked.extra.extend(values.into_iter().map(|value| (key.clone(), value)));
                }
            }
            headers.remove(&name);
        }
        asked.extra.sort();
        (asked != Self::default()).then_some(asked)
    }

    /// All that the requestor must be allowed to be.
    fn abouts(&self) -> Vec<ResourceAbout> {
        let about = |group: &str, resource: &str, name: &str| ResourceAbout {
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..ResourceAbout::default()
        };
        let mut all = vec![match user::account_of(&self.user) {
            Some((namespace, name)) => {
                ResourceAbout { namespace: namespace.to_owned(), ..about("", "serviceaccounts", name) }
            }
            None => about("", "users", &self.user),
        }];
        all.extend(self.groups.iter().map(|name| about("", "groups", name)));
        all.extend(self.extra.iter().map(|(key, value)| ResourceAbout {
            subresource: key.clone(),
            ..about(AUTHENTICATION, "userextras", value)
        }));
        if !self.uid.is_empty() {
            all.push(about(AUTHENTICATION, "uids", &self.uid));
        }
        all
    }

    fn user(self) -> UserInfo {
        let mut groups = self.groups;
        if let Some((namespace, _)) = user::account_of(&self.user).filter(|_| groups.is_empty()) {
            groups = user::groups_of_accounts(namespace);
        }
        let mut user = UserInfo { name: self.user, uid: self.uid, groups, ..UserInfo::default() };
        for (key, value) in self.extra {
            user.extra.entry(key).or_default().push(value);
        }
        let known = |user: &UserInfo, group| user.is_in(group);
        if user.name == ANONYMOUS {
            if !known(&user, UNAUTHENTICATED) {
                user.groups.push(UNAUTHENTICATED.to_owned());
            }
        } else if !known(&user, AUTHENTICATED) && !known(&user, UNAUTHENTICATED) {
            user.groups.push(AUTHENTICATED.to_owned());
        }
        user
    }

    /// As Go prints upstream's list of references.
    fn describe(&self) -> String {
        let groups = self.groups.iter().map(|name| format!("{{Group  {name}    }}"));
        let version = format!("{AUTHENTICATION}/v1");
        let extra = self.extra.iter().map(|(key, value)| format!("{{UserExtra  {value}  {version}  {key}}}"));
        let uid = (!self.uid.is_empty()).then(|| format!("{{UID  {}  {version}  }}", self.uid));
        format!("[{}]", groups.chain(extra).chain(uid).collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), value.parse().unwrap());
        all.iter().map(pair).collect()
    }

    #[track_caller]
    fn check(asked: &[(&'static str, &str)], name: &str, groups: &[&str]) -> UserInfo {
        let mut headers = headers(asked);
        let user = Asked::take(&mut headers).unwrap().user();
        assert_eq!(
            (user.name.as_str(), user.groups.iter().map(String::as_str).collect::<Vec<_>>()),
            (name, groups.to_vec())
        );
        assert!(headers.is_empty());
        user
    }

    #[test]
    fn groups_follow_from_the_user_unless_they_are_said() {
        check(&[(USER, "bob")], "bob", &["system:authenticated"]);
        check(&[(USER, "bob"), (GROUP, "a"), (GROUP, "b")], "bob", &["a", "b", "system:authenticated"]);
        check(&[(USER, "bob"), (GROUP, "system:unauthenticated")], "bob", &["system:unauthenticated"]);
        check(&[(USER, "system:anonymous")], "system:anonymous", &["system:unauthenticated"]);
        check(
            &[(USER, "system:serviceaccount:n:a")],
            "system:serviceaccount:n:a",
            &["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"],
        );
        check(
            &[(USER, "system:serviceaccount:n:a"), (GROUP, "g")],
            "system:serviceaccount:n:a",
            &["g", "system:authenticated"],
        );
        check(&[(USER, "system:serviceaccount:n:a:b")], "system:serviceaccount:n:a:b", &["system:authenticated"]);
    }

    #[test]
    fn more_may_be_said_of_a_user() {
        let user = check(
            &[(USER, "bob"), (UID, "7"), ("impersonate-extra-a%2fb", "x"), ("impersonate-extra-a%2fb", "y")],
            "bob",
            &["system:authenticated"],
        );
        assert_eq!((user.uid.as_str(), &user.extra["a/b"]), ("7", &vec!["x".to_owned(), "y".to_owned()]));
        assert_eq!(Asked::take(&mut headers(&[("accept", "x")])), None);
        let nobody = Asked::take(&mut headers(&[(GROUP, "g"), (UID, "7"), ("impersonate-extra-k", "v")])).unwrap();
        let expected =
            "[{Group  g    } {UserExtra  v  authentication.k8s.io/v1  k} {UID  7  authentication.k8s.io/v1  }]";
        assert_eq!(nobody.describe(), expected);
    }
}
