//! Rewording of the YAML library's errors: what was found, and what to write instead.

use std::borrow::Cow;

use serde_saphyr::granit_parser::ErrorKind;
use serde_saphyr::localizer::ExternalMessageSource;
use serde_saphyr::{Error, MessageFormatter as _, UserMessageFormatter};

pub(super) fn of(error: &Error) -> String {
    let message: Cow<'_, str> = match error {
        Error::ExternalMessage { source, .. } => match &**source {
            ExternalMessageSource::Parser(error) => of_text(error.kind()),
            _ => None,
        },
        Error::DuplicateMappingKey { key, .. } => {
            let field = key.as_deref().unwrap_or("a field");
            Some(format!("{field} is given twice: expected it once").into())
        }
        // The error is in the value that an alias stands for.
        Error::AliasError { error, .. } => Some(of(error).into()),
        error => of_value(error).map(Into::into),
    }
    .unwrap_or_else(|| UserMessageFormatter.format_message(error));
    message.into_owned()
}

fn of_value(error: &Error) -> Option<&'static str> {
    Some(match error {
        Error::Eof { .. } => "found nothing: expected a value",
        Error::MultipleDocuments { .. } => "found a second document after `---`: expected one",
        Error::UnknownAnchor { .. } => {
            "found `*` with a name that no `&` gives before: quote a text that begins with `*`"
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "found `*` within the value that it stands for: expected it after that"
        }
        Error::MergeValueNotMapOrSeqOfMaps { .. } => "expected an object after `<<`, or a list of objects",
        Error::UnsupportedTag { .. }
        | Error::InvalidBinaryBase64 { .. }
        | Error::BinaryNotUtf8 { .. }
        | Error::TaggedScalarCannotDeserializeIntoString { .. } => TAG,
        Error::Unexpected { expected: "string scalar", .. } => "expected a text, found a list or an object",
        Error::Unexpected { expected: "mapping start", .. } => "expected an object, as in `name: value`",
        Error::NullIntoString { .. } => "expected a text, found nothing",
        Error::NonFiniteFloat { .. } => "expected a finite number: quote a text that looks like `.inf` or `.nan`",
        Error::Budget { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            "expected less: it is too large or too deep, with what its `*` stand for"
        }
        _ => return None,
    })
}

const TAG: &str = "found a tag: expected none; quote a text that begins with `!`";
const DIRECTIVE: &str = "found a directive: expected none; quote a text that begins with `%`";
const ESCAPE: &str =
    "found an escape that means no character: write `\\\\` for a backslash, or put the text in single quotes";

/// Message for a text that is not YAML; `None` for errors too rare to need their own wording.
fn of_text(kind: &ErrorKind) -> Option<Cow<'static, str>> {
    use ErrorKind as Kind;
    Some(Cow::Borrowed(match kind {
        Kind::UnexpectedCharacter { character } => {
            return Some(format!("found {character:?}, which begins no text: expected it in quotes").into());
        }
        Kind::UnclosedFlowCollection { open } => {
            let close = if *open == '[' { ']' } else { '}' };
            return Some(format!("found no `{close}` for this `{open}`: expected it after the last item").into());
        }
        Kind::MismatchedFlowCollectionEnd { open, close } => {
            return Some(format!("found `{close}` for a `{open}`: expected its counterpart").into());
        }
        Kind::TabNotAllowed | Kind::TabInBlockIndentation | Kind::TabInIndentation | Kind::TabAtBlockScalarStart => {
            "found a tab: expected spaces before the first character of a line"
        }
        Kind::TabInPlainScalar => "found a tab after this text: expected spaces, or quotes around the text",
        Kind::MisplacedFlowCollectionEnd => "found a closing bracket: expected an opening one before",
        Kind::UnexpectedEofFlowSequence | Kind::ExpectedFlowSequenceSeparator => "expected `,` or `]` after an item",
        Kind::UnexpectedEofFlowMapping | Kind::ExpectedFlowMappingSeparator => "expected `,` or `}` after a field",
        Kind::UnexpectedEofImplicitFlowMapping => "expected a field, as in `name: value`, before a `,`",
        Kind::UnexpectedEof | Kind::UnexpectedEofBlockSequence | Kind::UnexpectedEofBlockMapping => {
            "found the end of the text: expected more"
        }
        Kind::InvalidQuotedScalarIndent | Kind::UnclosedQuotedScalar => {
            "found no closing quote: expected it at the end of the text, whose other lines are indented more than its \
             field"
        }
        Kind::DocumentIndicatorInQuotedScalar => {
            "found `---` or `...` in a quoted text: expected its closing quote before"
        }
        Kind::InvalidTrailingSingleQuotedScalar | Kind::InvalidTrailingDoubleQuotedScalar => {
            "found more after a closing quote: expected all of the text in quotes"
        }
        Kind::UnknownQuotedScalarEscape
        | Kind::InvalidQuotedScalarHexEscape
        | Kind::InvalidLowSurrogateHexEscape
        | Kind::InvalidLowSurrogate
        | Kind::MissingLowSurrogate
        | Kind::UnpairedLowSurrogate
        | Kind::InvalidUnicodeEscape => ESCAPE,
        Kind::MissingAnchorOrAliasName => {
            "found `*` or `&` without a name: expected quotes around a text that begins so"
        }
        Kind::MappingValueNotAllowed | Kind::InvalidColonPlacement | Kind::MappingKeyNotAllowed => {
            "found `:` where no field can be: expected the fields of an object in one column, and quotes around a \
             text with `: `"
        }
        Kind::SimpleKeyExpected | Kind::InvalidSimpleKey => "expected `: ` after the name of a field",
        Kind::ExpectedBlockMappingKey => "expected a field, as in `name: value`, in the column of those before it",
        Kind::ExpectedBlockSequenceEntry => "expected an item that begins with `- `, in the column of those before it",
        Kind::InvalidIndentation | Kind::InvalidFlowScalarIndent => {
            "found too few spaces: expected the line indented more than the field that it belongs to"
        }
        Kind::BlockSequenceEntryNotAllowed | Kind::BlockEntryInFlowCollection | Kind::InvalidBlockEntryWhitespace => {
            "found `-` where no item can be: expected it at the begin of a line, or quotes around a text that begins so"
        }
        Kind::PlainScalarStartsWithDashFlowIndicator => {
            "found `-` before a bracket or a comma: expected quotes around it"
        }
        Kind::CommentNotSeparated => "found `#` without a space before it: expected one, or quotes around the text",
        Kind::CommentInterceptedScalar => {
            "found more of a text after a comment: expected the text in one piece, or in quotes"
        }
        Kind::ZeroBlockScalarIndent | Kind::InvalidBlockScalarHeader | Kind::InvalidBlockScalarIndent => {
            "expected the text after `|` or `>` on lines of its own, all indented more than its field"
        }
        Kind::RecursionLimitExceeded => "found too many lists and objects within one another: expected fewer",
        Kind::ExpectedDocumentStart
        | Kind::UnsupportedYamlMajorVersion
        | Kind::MissingYamlVersion
        | Kind::MissingYamlVersionSeparator
        | Kind::MissingDirectiveName
        | Kind::InvalidDirectiveName
        | Kind::InvalidDirectiveTerminator => DIRECTIVE,
        Kind::UndeclaredTagHandle
        | Kind::InvalidTagTerminator
        | Kind::MissingTagUri
        | Kind::UnclosedVerbatimTag
        | Kind::InvalidTagEscape
        | Kind::InvalidGlobalTagCharacter => TAG,
        Kind::ExpectedNodeContent => "expected a value",
        _ => return None,
    }))
}
