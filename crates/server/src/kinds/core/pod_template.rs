//! PodTemplate.

use crate::kinds::{Cell, FieldPath, KindInfo, NAME, plain::Plain, template, text};

pub(in crate::kinds) static POD_TEMPLATE: Plain = Plain {
    columns: &[
        NAME,
        text("Containers", Cell::Of(|t, _| template::joined(&t["template"], "name"))),
        text("Images", Cell::Of(|t, _| template::joined(&t["template"], "image"))),
        text("Pod Labels", Cell::Of(|t, _| template::labels(&t["template"]))),
    ],
    default: |object| template::default(object, "/template"),
    validate: |object, errors| template::validate(&object["template"], &FieldPath::new("template"), errors),
    warnings: |object, old| template::warnings(object, old, &["template"]),
    ..Plain::of(&KindInfo { generation: true, ..KindInfo::core("PodTemplate", "podtemplates", "podtemplate") })
};
