//! Impersonation (`kubectl --as`): acting as another user by headers, which needs the verb `impersonate`
//! (`k8s.io/apiserver/pkg/endpoints/filters/impersonation`).

use audit::AuditContext;
use auth::authorization::Authorizer;
use errors::ApiError;
use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;
use request::{
    Attributes, ResourceAttributes, UserInfo,
    user::{self, ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED},
};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// Returns the user that a request acts as, and removes the impersonation headers.
pub(crate) async fn impersonate(
    authorizer: &Authorizer,
    requestor: UserInfo,
    headers: &mut HeaderMap,
    audit: &AuditContext,
) -> Result<UserInfo, ApiError> {
    let Some(request) = ImpersonationRequest::take_from(headers) else { return Ok(requestor) };
    if request.user.is_empty() {
        return Err(ApiError::bad_request(format!("requested {} without impersonating a user", request.describe())));
    }
    if !requestor.is_master() {
        authorizer.rbac().wait_until_bootstrapped().await;
        for attributes in request.required_permissions() {
            authorizer.require(&requestor, &Attributes::for_resource("impersonate", attributes))?;
        }
    }
    let user = request.user();
    audit.log_impersonated_user(&user);
    Ok(user)
}

/// The user that the headers request.
#[derive(Debug, Default, PartialEq, Eq)]
struct ImpersonationRequest {
    user: String,
    groups: Vec<String>,
    uid: String,
    /// Keys and values, sorted by key.
    extra: Vec<(String, String)>,
}

impl ImpersonationRequest {
    fn take_from(headers: &mut HeaderMap) -> Option<Self> {
        let names: Vec<HeaderName> =
            headers.keys().filter(|n| n.as_str().starts_with("impersonate-")).cloned().collect();
        let mut request = Self::default();
        for name in names {
            let values: Vec<String> =
                headers.get_all(&name).iter().map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).collect();
            let first = || values.first().cloned().unwrap_or_default();
            match name.as_str() {
                USER => request.user = first(),
                UID => request.uid = first(),
                GROUP => request.groups = values,
                other => {
                    let Some(key) = other.strip_prefix(EXTRA) else { continue };
                    let key = percent_decode_str(key).decode_utf8_lossy().into_owned();
                    request.extra.extend(values.into_iter().map(|value| (key.clone(), value)));
                }
            }
            headers.remove(&name);
        }
        request.extra.sort();
        (request != Self::default()).then_some(request)
    }

    /// Returns the resources for which the requestor needs the verb `impersonate`.
    fn required_permissions(&self) -> Vec<ResourceAttributes> {
        let attributes = |group: &str, resource: &str, name: &str| ResourceAttributes {
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..ResourceAttributes::default()
        };
        let mut all = vec![match user::parse_service_account(&self.user) {
            Some((namespace, name)) => {
                ResourceAttributes { namespace: namespace.to_owned(), ..attributes("", "serviceaccounts", name) }
            }
            None => attributes("", "users", &self.user),
        }];
        all.extend(self.groups.iter().map(|name| attributes("", "groups", name)));
        all.extend(self.extra.iter().map(|(key, value)| ResourceAttributes {
            subresource: key.clone(),
            ..attributes(AUTHENTICATION, "userextras", value)
        }));
        if !self.uid.is_empty() {
            all.push(attributes(AUTHENTICATION, "uids", &self.uid));
        }
        all
    }

    /// Returns the impersonated user, with the groups that authentication would add.
    fn user(self) -> UserInfo {
        let mut groups = self.groups;
        if let Some((namespace, _)) = user::parse_service_account(&self.user).filter(|_| groups.is_empty()) {
            groups = user::service_account_groups(namespace);
        }
        let mut user = UserInfo { name: self.user, uid: self.uid, groups, ..UserInfo::default() };
        for (key, value) in self.extra {
            user.extra.entry(key).or_default().push(value);
        }
        let is_in = |user: &UserInfo, group| user.is_in(group);
        if user.name == ANONYMOUS {
            if !is_in(&user, UNAUTHENTICATED) {
                user.groups.push(UNAUTHENTICATED.to_owned());
            }
        } else if !is_in(&user, AUTHENTICATED) && !is_in(&user, UNAUTHENTICATED) {
            user.groups.push(AUTHENTICATED.to_owned());
        }
        user
    }

    /// Formats the request as Go prints upstream's list of object references.
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
    fn check(all: &[(&'static str, &str)], name: &str, groups: &[&str]) -> UserInfo {
        let mut headers = headers(all);
        let user = ImpersonationRequest::take_from(&mut headers).unwrap().user();
        assert_eq!(
            (user.name.as_str(), user.groups.iter().map(String::as_str).collect::<Vec<_>>()),
            (name, groups.to_vec())
        );
        assert!(headers.is_empty());
        user
    }

    #[test]
    fn groups_default_to_those_of_the_user() {
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
    fn uid_and_extra_are_impersonated() {
        let user = check(
            &[(USER, "bob"), (UID, "7"), ("impersonate-extra-a%2fb", "x"), ("impersonate-extra-a%2fb", "y")],
            "bob",
            &["system:authenticated"],
        );
        assert_eq!((user.uid.as_str(), &user.extra["a/b"]), ("7", &vec!["x".to_owned(), "y".to_owned()]));
        assert_eq!(ImpersonationRequest::take_from(&mut headers(&[("accept", "x")])), None);
        let without_user =
            ImpersonationRequest::take_from(&mut headers(&[(GROUP, "g"), (UID, "7"), ("impersonate-extra-k", "v")]))
                .unwrap();
        let expected =
            "[{Group  g    } {UserExtra  v  authentication.k8s.io/v1  k} {UID  7  authentication.k8s.io/v1  }]";
        assert_eq!(without_user.describe(), expected);
    }
}
