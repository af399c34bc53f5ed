use super::*;

const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/sh\n\n  app:x:1000:1001::/app:/bin/sh\nlast:x:7:8\n\
    broken:x:abc:0::/:\nempty:x::0::/:\nnogroup:x:9\nbadgroup:x:10:x::/:\nbig:x:4294967296:0::/:\n12:x:13:14::/:\n\
    \xff:x:15:16::/:\n+::::::\n";
const GROUP: &[u8] = b"root:x:0:\nwheel:x:10:root,app\n#commented:x:11:app\napp:x:1001:app\nstaff:x:50:app,\n\
    bad:x:y:app\nnone:x:60\nnumeric:x:70:12\n";

fn users() -> UserDatabase<'static> {
    UserDatabase { passwd: Some(PASSWD), group: Some(GROUP) }
}

/// Resolves a user of the image.
#[track_caller]
fn check_image(user: &str, expected: Result<(u32, u32, &[u32]), &str>) {
    let image = ImageConfig { user: user.to_owned(), ..ImageConfig::default() };
    let found = resolve(&SecurityContext::default(), &image, users());
    let expected = expected.map(|(uid, gid, groups)| ResolvedUser { uid, gid, groups: groups.to_vec() });
    assert_eq!(found.map_err(|e| e.to_string()), expected.map_err(str::to_owned), "{user}");
}

#[test]
fn users_of_images_are_resolved() {
    check_image("", Ok((0, 0, &[0, 10])));
    check_image("root", Ok((0, 0, &[0, 10])));
    check_image("app", Ok((1000, 1001, &[10, 50, 1001])));
    check_image("1000", Ok((1000, 1001, &[10, 50, 1001])));
    check_image("1000:5", Ok((1000, 5, &[5, 10, 50])));
    check_image("app:staff", Ok((1000, 50, &[10, 50])));
    check_image("77:wheel", Ok((77, 10, &[10])));
    check_image("77", Ok((77, 0, &[0])));
    check_image("last", Ok((7, 8, &[8])));
    check_image("nogroup", Ok((9, 0, &[0])));
    // A number is never a name.
    check_image("12", Ok((12, 0, &[0])));
    let max = 2_147_483_647;
    check_image("2147483647:2147483647", Ok((max, max, &[max])));
}

#[test]
fn invalid_users_are_errors() {
    check_image("nobody", Err("unable to find user nobody: no users found"));
    check_image("app:nobody", Err("unable to find group nobody: no groups found"));
    check_image("app:bad", Err("unable to find group bad: no groups found"));
    check_image("a:b:c", Err("invalid USER value a:b:c"));
    check_image("2147483648", Err("invalid USER value \"2147483648\": uid out of range"));
    check_image("-1", Err("invalid USER value \"-1\": uid out of range"));
    check_image("99999999999999999999999", Err("invalid USER value \"99999999999999999999999\": uid out of range"));
    check_image("app:-5", Err("invalid USER value \"app:-5\": gid out of range"));
    check_image(":5", Err("unable to find user : no users found"));
}

#[test]
fn entries_without_valid_ids_are_not_root() {
    for name in ["broken", "empty", "badgroup", "big", "+"] {
        check_image(name, Err(&format!("unable to find user {name}: no users found")));
    }
}

#[track_caller]
fn check_pod(
    mut security: SecurityContext,
    policy: SupplementalGroupsPolicy,
    expected: Result<(u32, u32, &[u32]), &str>,
) {
    let image = ImageConfig { user: "app:staff".to_owned(), ..ImageConfig::default() };
    let expected = expected.map(|(uid, gid, groups)| ResolvedUser { uid, gid, groups: groups.to_vec() });
    security.supplemental_groups_policy = policy;
    let found = resolve(&security, &image, users()).map_err(|e| e.to_string());
    assert_eq!(found, expected.map_err(str::to_owned));
}

#[test]
fn user_of_the_pod_replaces_that_of_the_image() {
    let user = |run_as_user, run_as_group, username: &str, groups: &[i64]| SecurityContext {
        run_as_user,
        run_as_group,
        username: username.to_owned(),
        supplemental_groups: groups.to_vec(),
        ..SecurityContext::default()
    };
    let merge = SupplementalGroupsPolicy::Merge;
    check_pod(user(Some(1000), None, "", &[]), merge, Ok((1000, 1001, &[10, 50, 1001])));
    check_pod(user(Some(1000), Some(3), "", &[4, 3]), merge, Ok((1000, 3, &[3, 4, 10, 50])));
    check_pod(user(None, Some(3), "app", &[]), merge, Ok((1000, 3, &[3, 10, 50])));
    check_pod(user(None, None, "", &[4]), merge, Ok((1000, 50, &[4, 10, 50])));
    check_pod(user(Some(1000), None, "root", &[]), merge, Ok((1000, 1001, &[10, 50, 1001])));
    let strict = SupplementalGroupsPolicy::Strict;
    check_pod(user(Some(1000), None, "", &[4]), strict, Ok((1000, 1001, &[4, 1001])));
    check_pod(user(None, Some(3), "", &[]), merge, Err("user group \"3\" is specified without user"));
    check_pod(user(None, None, "", &[-1]), merge, Err("supplemental group -1 out of range"));
    check_pod(user(None, None, "", &[1 << 32]), merge, Err("supplemental group 4294967296 out of range"));
}

#[test]
fn files_of_the_image_are_bounded() {
    let large = vec![b'\n'; MAX_USER_FILE_BYTES + 1];
    let database = UserDatabase { passwd: None, group: Some(&large) };
    let (security, image) = (SecurityContext::default(), ImageConfig::default());
    let found = resolve(&security, &image, database);
    assert_eq!(found.unwrap_err().to_string(), "/etc/group exceeds 10485760 bytes");
    let many: String = (0..=MAX_GROUPS).map(|gid| format!("g{gid}:x:{gid}:root\n")).collect();
    let database = UserDatabase { passwd: Some(PASSWD), group: Some(many.as_bytes()) };
    let found = resolve(&security, &image, database);
    assert_eq!(found, Err(Error::TooManyGroups(MAX_GROUPS + 1)));
    let none = UserDatabase::default();
    let found = resolve(&security, &image, none);
    assert_eq!(found, Ok(ResolvedUser { uid: 0, gid: 0, groups: vec![0] }));
}
