//! Review kinds, which can only be created and are not stored. The server computes their status.

use super::{KindInfo, generic_kind::GenericKind};

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

const fn review_kind(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
) -> KindInfo {
    KindInfo { create_only: true, ..KindInfo::cluster_scoped(group, kind, plural, singular) }
}

pub(super) static SELF_SUBJECT_REVIEW: GenericKind =
    GenericKind::new(&review_kind(AUTHENTICATION, "SelfSubjectReview", "selfsubjectreviews", "selfsubjectreview"));
pub(super) static TOKEN_REVIEW: GenericKind =
    GenericKind::new(&review_kind(AUTHENTICATION, "TokenReview", "tokenreviews", "tokenreview"));
pub(super) static LOCAL_SUBJECT_ACCESS_REVIEW: GenericKind = GenericKind::new(&KindInfo {
    namespaced: true,
    ..review_kind(AUTHORIZATION, "LocalSubjectAccessReview", "localsubjectaccessreviews", "localsubjectaccessreview")
});
pub(super) static SELF_SUBJECT_ACCESS_REVIEW: GenericKind = GenericKind::new(&review_kind(
    AUTHORIZATION,
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
    "selfsubjectaccessreview",
));
pub(super) static SELF_SUBJECT_RULES_REVIEW: GenericKind = GenericKind::new(&review_kind(
    AUTHORIZATION,
    "SelfSubjectRulesReview",
    "selfsubjectrulesreviews",
    "selfsubjectrulesreview",
));
pub(super) static SUBJECT_ACCESS_REVIEW: GenericKind =
    GenericKind::new(&review_kind(AUTHORIZATION, "SubjectAccessReview", "subjectaccessreviews", "subjectaccessreview"));
