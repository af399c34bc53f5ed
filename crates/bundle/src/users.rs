//! User and groups of a container's process, from the numbers and names of the Pod and the image (containerd's
//! `WithUser`, `WithAdditionalGIDs`; `moby/sys/user`).

use crate::{Error, ImageConfig};
use runtime::{SecurityContext, SupplementalGroupsPolicy};
use std::collections::BTreeSet;

/// Maximum size of `/etc/passwd` and of `/etc/group` in bytes, as containerd's.
pub const MAX_USER_FILE_BYTES: usize = 10 << 20;

/// Largest ID that OCI runtimes accept, as upstream's.
const MAX_ID: i64 = i32::MAX as i64;
/// Maximum number of supplemental groups of a process (`NGROUPS_MAX`).
const MAX_GROUPS: usize = 65_536;

/// Files of the image's root file system with users and groups. The caller must not follow links out of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct UserDatabase<'a> {
    /// `/etc/passwd`, if it exists.
    pub passwd: Option<&'a [u8]>,
    /// `/etc/group`, if it exists.
    pub group: Option<&'a [u8]>,
}

/// User of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedUser {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Supplemental groups, with the primary one, sorted.
    pub(crate) groups: Vec<u32>,
}

/// Entry of `/etc/passwd`.
struct Account<'a> {
    name: &'a [u8],
    uid: u32,
    gid: u32,
}

/// Returns the user of a container: the Pod's user and group, else the image's.
///
/// A user by number needs no entry in the image; its group is 0 then. A name without an entry is an error. The primary
/// group is a supplemental group, too: otherwise a process could escape a denial of it (CVE-2022-36109).
pub(crate) fn resolve(
    security: &SecurityContext,
    image: &ImageConfig,
    database: UserDatabase<'_>,
) -> Result<ResolvedUser, Error> {
    for (path, file) in [("/etc/passwd", database.passwd), ("/etc/group", database.group)] {
        if file.is_some_and(|file| file.len() > MAX_USER_FILE_BYTES) {
            return Err(Error::UserFileTooLarge { path, limit: MAX_USER_FILE_BYTES });
        }
    }
    let spec = user_spec(security, image)?;
    let (uid, gid) = if spec.is_empty() { (0, 0) } else { user_and_group(&spec, database)? };
    let mut groups = BTreeSet::from([gid]);
    for group in &security.supplemental_groups {
        groups.insert(u32::try_from(*group).map_err(|_| Error::GroupOutOfRange(*group))?);
    }
    if security.supplemental_groups_policy == SupplementalGroupsPolicy::Merge {
        let user = spec.split(':').next().filter(|user| !user.is_empty()).unwrap_or("0");
        groups.extend(memberships(user, database));
    }
    if groups.len() > MAX_GROUPS {
        return Err(Error::TooManyGroups(groups.len()));
    }
    Ok(ResolvedUser { uid, gid, groups: groups.into_iter().collect() })
}

/// Returns the user as `user` or `user:group`; empty for root.
fn user_spec(security: &SecurityContext, image: &ImageConfig) -> Result<String, Error> {
    let user = match security.run_as_user {
        Some(uid) => uid.to_string(),
        None => security.username.clone(),
    };
    match security.run_as_group {
        Some(group) if user.is_empty() => Err(Error::GroupWithoutUser(group)),
        Some(group) => Ok(format!("{user}:{group}")),
        None if user.is_empty() => Ok(image.user.clone()),
        None => Ok(user),
    }
}

fn user_and_group(spec: &str, database: UserDatabase<'_>) -> Result<(u32, u32), Error> {
    let out_of_range = |id| Error::UserOutOfRange { user: spec.to_owned(), id };
    let parts: Vec<&str> = spec.split(':').collect();
    let (user, group) = match parts.as_slice() {
        [user] => (*user, None),
        [user, group] => (*user, Some(*group)),
        _ => return Err(Error::InvalidUser(spec.to_owned())),
    };
    let (uid, primary) = match number(user).map_err(|()| out_of_range("uid"))? {
        // With a group, the entry of a number is not needed.
        Some(uid) if group.is_some() => (uid, 0),
        Some(uid) => (uid, accounts(database).find(|account| account.uid == uid).map_or(0, |account| account.gid)),
        None => {
            let account = accounts(database).find(|account| account.name == user.as_bytes());
            let account = account.ok_or_else(|| Error::NoUser(user.to_owned()))?;
            (account.uid, account.gid)
        }
    };
    let Some(group) = group else { return Ok((uid, primary)) };
    let gid = match number(group).map_err(|()| out_of_range("gid"))? {
        Some(gid) => gid,
        None => {
            let found = groups(database).find(|(name, _, _)| *name == group.as_bytes());
            found.ok_or_else(|| Error::NoGroup(group.to_owned()))?.1
        }
    };
    Ok((uid, gid))
}

/// Returns the number that a text is, or `None` if it is a name.
fn number(text: &str) -> Result<Option<u32>, ()> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(None);
    }
    let number = text.parse().ok().filter(|number: &i64| (0..=MAX_ID).contains(number)).ok_or(())?;
    u32::try_from(number).map(Some).map_err(|_| ())
}

/// Returns the groups that have a user as a member. A user by number has those of the name of its entry, if any.
fn memberships(user: &str, database: UserDatabase<'_>) -> Vec<u32> {
    let name = match number(user) {
        Ok(Some(uid)) => accounts(database).find(|account| account.uid == uid).map(|account| account.name),
        _ => Some(user.as_bytes()),
    };
    let Some(name) = name else { return Vec::new() };
    let has_member = |members: &[u8]| members.split(|byte| *byte == b',').any(|member| member == name);
    groups(database)
        .filter(|(group, _, members)| *group != name && has_member(members))
        .map(|(_, gid, _)| gid)
        .collect()
}

/// Returns the entries of `/etc/passwd`. Entries without a valid user ID are skipped: upstream reads them as root's.
fn accounts(database: UserDatabase<'_>) -> impl Iterator<Item = Account<'_>> {
    lines(database.passwd).filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let name = fields.next()?;
        let uid = id(fields.nth(1)?)?;
        let gid = match fields.next().unwrap_or_default() {
            [] => 0,
            field => id(field)?,
        };
        Some(Account { name, uid, gid })
    })
}

/// Returns name, ID and members of the entries of `/etc/group`. Entries without a valid ID are skipped.
fn groups(database: UserDatabase<'_>) -> impl Iterator<Item = (&[u8], u32, &[u8])> {
    lines(database.group).filter(|line| !line.starts_with(b"#")).filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let name = fields.next()?;
        Some((name, id(fields.nth(1)?)?, fields.next().unwrap_or_default()))
    })
}

fn id(field: &[u8]) -> Option<u32> {
    number(std::str::from_utf8(field).ok()?).ok().flatten()
}

fn lines(file: Option<&[u8]>) -> impl Iterator<Item = &[u8]> {
    file.unwrap_or_default().split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests;
