//! PodTemplate.

use crate::{Cell, KindInfo, NAME, field_cursor::FieldCursor, generic_kind::GenericKind, pod_template_spec, text};

pub(crate) static POD_TEMPLATE: GenericKind = GenericKind {
    columns: &[
        NAME,
        text("Containers", Cell::Computed(|t, _| pod_template_spec::container_field_list(&t["template"], "name"))),
        text("Images", Cell::Computed(|t, _| pod_template_spec::container_field_list(&t["template"], "image"))),
        text("Pod Labels", Cell::Computed(|t, _| pod_template_spec::labels(&t["template"]))),
    ],
    default: |object| pod_template_spec::set_pod_template_defaults(object, "/template"),
    validate: |object, errors| pod_template_spec::validate(&FieldCursor::object(object).at("template"), errors),
    warnings: |object, old| pod_template_spec::warnings(object, old, &["template"]),
    ..GenericKind::new(&KindInfo { generation: true, ..KindInfo::core("PodTemplate", "podtemplates", "podtemplate") })
};
