//! Kinds that are questions: asked with a POST, and stored nowhere. The answers are in [`crate::reviews`].

use super::{KindInfo, plain::Plain};

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

const fn question(group: &'static str, kind: &'static str, plural: &'static str, singular: &'static str) -> KindInfo {
    KindInfo { question: true, ..KindInfo::of_cluster(group, kind, plural, singular) }
}

pub(super) static SELF_SUBJECT_REVIEW: Plain =
    Plain::of(&question(AUTHENTICATION, "SelfSubjectReview", "selfsubjectreviews", "selfsubjectreview"));
pub(super) static TOKEN_REVIEW: Plain =
    Plain::of(&question(AUTHENTICATION, "TokenReview", "tokenreviews", "tokenreview"));
pub(super) static LOCAL_SUBJECT_ACCESS_REVIEW: Plain = Plain::of(&KindInfo {
    namespaced: true,
    ..question(AUTHORIZATION, "LocalSubjectAccessReview", "localsubjectaccessreviews", "localsubjectaccessreview")
});
pub(super) static SELF_SUBJECT_ACCESS_REVIEW: Plain = Plain::of(&question(
    AUTHORIZATION,
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
    "selfsubjectaccessreview",
));
pub(super) static SELF_SUBJECT_RULES_REVIEW: Plain =
    Plain::of(&question(AUTHORIZATION, "SelfSubjectRulesReview", "selfsubjectrulesreviews", "selfsubjectrulesreview"));
pub(super) static SUBJECT_ACCESS_REVIEW: Plain =
    Plain::of(&question(AUTHORIZATION, "SubjectAccessReview", "subjectaccessreviews", "subjectaccessreview"));
