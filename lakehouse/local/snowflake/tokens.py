"""Reading of a statement's tokens from left to right."""

import sqlglot
from sqlglot.tokens import Token, TokenType

from lakehouse.local.snowflake.snowflake_errors import syntax_error

Name = tuple[str, ...]
"""An object's name, one part or more, as Snowflake stores it: unquoted parts in upper case."""

_QUOTED = {TokenType.STRING, TokenType.RAW_STRING, TokenType.IDENTIFIER}
_STRINGS = {TokenType.STRING, TokenType.RAW_STRING}


class TokenReader:
    """A reader of keywords, names and literals. Unexpected tokens raise Snowflake's syntax error."""

    def __init__(self, sql: str):
        """Tokenize a statement.

        Args:
            sql: One statement, with or without a closing semicolon.

        Raises:
            sqlglot.errors.TokenError: It cannot be split into tokens, for example because of an open quote.
        """
        self._tokens: list[Token] = list(sqlglot.tokenize(sql, read="snowflake"))
        while self._tokens and self._tokens[-1].token_type == TokenType.SEMICOLON:
            self._tokens.pop()
        self._at = 0

    def at_end(self) -> bool:
        """Return whether all tokens have been read."""
        return self._at >= len(self._tokens)

    def at(self, *words: str) -> bool:
        """Return whether the next tokens are these keywords or signs."""
        return all(self._word(offset) == word for offset, word in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Read these keywords if they are next, and return whether they were."""
        matches = self.at(*words)
        if matches:
            self._at += len(words)
        return matches

    def accept_one_of(self, *choices: str) -> str | None:
        """Read and return the first choice (keywords separated by spaces) that is next; None if none is."""
        return next((choice for choice in choices if self.accept(*choice.split())), None)

    def expect_one_of(self, expected: str, *choices: str) -> str:
        """Read and return the first choice that is next.

        Raises:
            ProgrammingError: None is; it names what is expected.
        """
        choice = self.accept_one_of(*choices)
        if choice is None:
            raise self.error(expected)
        return choice

    def expect(self, *words: str) -> None:
        """Read these keywords, which must be next."""
        if not self.accept(*words):
            raise self.error(" ".join(words))

    def expect_end(self) -> None:
        """Check that all tokens have been read."""
        if not self.at_end():
            raise self.error("end of statement")

    def identifier(self) -> str:
        """Read an identifier; unquoted ones are converted to upper case (Snowflake, Identifier requirements)."""
        token = self._next("identifier")
        if token.token_type in _STRINGS or not (token.token_type in _QUOTED or _is_word(token.text)):
            self._at -= 1
            raise self.error("identifier")
        return token.text if token.token_type == TokenType.IDENTIFIER else token.text.upper()

    def name(self) -> Name:
        """Read a name, qualified or not."""
        parts = [self.identifier()]
        while self.accept("."):
            parts.append(self.identifier())
        return tuple(parts)

    def string(self) -> str:
        """Read a string literal, and return it without its quotes."""
        token = self._next("string")
        if token.token_type not in _STRINGS:
            self._at -= 1
            raise self.error("string")
        return token.text

    def at_string(self) -> bool:
        """Return whether a string literal is next."""
        return not self.at_end() and self._tokens[self._at].token_type in _STRINGS

    def number(self) -> int:
        """Read an integer literal."""
        token = self._next("number")
        if token.token_type != TokenType.NUMBER or not token.text.isdigit():
            self._at -= 1
            raise self.error("number")
        return int(token.text)

    def error(self, expected: str = ""):
        """Return the syntax error at the current token."""
        return syntax_error("<EOF>" if self.at_end() else self._tokens[self._at].text, expected)

    def _word(self, offset: int) -> str | None:
        index = self._at + offset
        if index >= len(self._tokens) or self._tokens[index].token_type in _QUOTED:
            return None
        return self._tokens[index].text.upper()

    def _next(self, expected: str) -> Token:
        if self.at_end():
            raise self.error(expected)
        self._at += 1
        return self._tokens[self._at - 1]


def _is_word(text: str) -> bool:
    return text.replace("$", "_").isidentifier()
