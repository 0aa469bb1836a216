"""Settings: three layers, all faults at once by the name that was used, secrets never shown."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from esclusa import App, Attempt, Lifecycle, Outcome, Record, To, option
from esclusa import settings as settings_module
from esclusa.loading import BUILT_IN, NoPipeline
from esclusa.model.errors import SettingsError
from esclusa.model.options import options_of
from esclusa.pipelines.media.settings import MediaSettings
from esclusa.settings import SYSTEM_OPTIONS, Settings, is_loopback
from esclusa.stores import without_password


class Parcel(Record, table="parcels"):
    lifecycle = Lifecycle("new -> sent")


class PostSettings(BaseModel):
    city: str = option("POST_CITY", "Valparaíso", help="Where it is sent from.")
    per_day: int = option("POST_PER_DAY", 10, ge=1, help="How many a day.")
    routes: list[str] = option("POST_ROUTES", [], help="Which routes.")
    key: SecretStr | None = option("POST_KEY", None, secret=True, help="The carrier's key.")
    unnamed: bool = False


def post_app(settings: type[BaseModel] = PostSettings) -> App:
    app = App("post", settings=settings)

    @app.stage(Parcel, take="new", retry=None, concurrency=lambda s: s.per_day, exhausted="sent")
    async def send(parcel: Parcel, at: Attempt) -> Outcome:
        return To("sent")

    @app.checks
    def check(settings: Any) -> Iterator[str]:
        if settings.key is None:
            yield "POST_KEY is not set"

    return app


def only_post(name: str) -> App:
    if name != "post":
        raise NoPipeline(f"{name!r} is not there")
    return post_app()


def load(**kwargs: Any) -> Settings:
    """The settings, with all built-in pipelines if the test names none."""
    return settings_module.load(**{"implied": BUILT_IN} | kwargs)


def faults_of(**kwargs: Any) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(**kwargs)
    return list(caught.value.faults)


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_defaults() -> None:
    settings = load(environ={})
    assert (settings.store, settings.port, settings.host, settings.lease_seconds) == (
        "sqlite:///esclusa.db",
        8082,
        "127.0.0.1",
        60,
    )
    assert [plan.name for plan in settings.plans] == ["replies", "tenders", "media", "documents"]
    assert settings.auto_migrate


def test_no_pipeline_is_loaded_unless_it_is_named(empty_folder: Path) -> None:
    for environ in ({}, {"ESCLUSA_PIPELINES": ""}, {"ESCLUSA_PIPELINES": " , "}):
        [fault] = faults_of(environ=environ, implied=())
        assert fault.startswith("ESCLUSA_PIPELINES: no pipeline is named")
    (empty_folder / "esclusa.toml").write_text("pipelines = []\n")
    assert "no pipeline is named" in faults_of(environ={}, implied=())[0]


def test_file_then_environment_then_flags(empty_folder: Path) -> None:
    (empty_folder / "esclusa.toml").write_text(
        'port = 1001\nlog_level = "debug"\ngrace_seconds = 3\n'
    )
    settings = load(
        environ={"PORT": "1002", "ESCLUSA_LOG_LEVEL": "WARNING"},
        overrides={"port": 1003, "host": None},
    )
    assert (settings.port, settings.log_level, settings.grace_seconds, settings.host) == (
        1003,
        "warning",
        3,
        "127.0.0.1",
    )
    assert settings.sources == {
        "port": "--port",
        "log_level": "ESCLUSA_LOG_LEVEL",
        "grace_seconds": "esclusa.toml: grace_seconds",
    }
    assert settings.config == Path("esclusa.toml")


def test_esclusa_port_overrides_port() -> None:
    assert load(environ={"PORT": "1", "ESCLUSA_PORT": "2"}).port == 2


def test_a_file_named_by_the_environment_or_a_flag(empty_folder: Path) -> None:
    (empty_folder / "a.toml").write_text("port = 1")
    (empty_folder / "b.toml").write_text("port = 2")
    assert load(environ={"ESCLUSA_CONFIG": "a.toml"}).port == 1
    assert load(environ={"ESCLUSA_CONFIG": "a.toml"}, path="b.toml").port == 2
    assert faults_of(environ={}, path="c.toml") == [
        "--config: 'c.toml' cannot be read: No such file or directory"
    ]


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(environ={}).port = 1  # type: ignore[misc]


def test_all_faults_are_reported_at_once_by_the_name_that_was_used(empty_folder: Path) -> None:
    (empty_folder / "esclusa.toml").write_text(
        'poll_seconds = "soon"\nstoer = "x"\n[medai]\nx = 1\n'
    )
    faults = faults_of(
        environ={
            "PORT": "70000",
            "ESCLUSA_STORE": "mysql://u:hunter2@h/x",
            "ESCLUSA_AUTO_MIGRATE": "maybe",
            "ESCLUSA_LEASE_SECONDS": "inf",
            "ESCLUSA_ALERT_WEBHOOK": "gopher://hunter2",
            "ESCLUSA_API_TOKENS": "hunter2:admin",
            "ESCLUSA_ARTIFACTS": "ftp://x",
            "ESCLUSA_PIPELINES": "post,nobody",
            "POST_PER_DAY": "0",
        },
        overrides={"log_level": "loud"},
        apps=only_post,
    )
    text = "\n".join(faults)
    for name in (
        "PORT: '70000'",
        "ESCLUSA_STORE: 'mysql://u:***@h/x'",
        "ESCLUSA_AUTO_MIGRATE: 'maybe' is not true or false",
        "ESCLUSA_LEASE_SECONDS: 'inf'",
        "ESCLUSA_ALERT_WEBHOOK: (secret)",
        "ESCLUSA_API_TOKENS: (secret)",
        "ESCLUSA_ARTIFACTS: ",
        "ESCLUSA_PIPELINES: 'nobody'",
        "POST_PER_DAY: '0' is not a whole number, 1 or more",
        "--log-level: 'loud' is not one of debug, info, warning, error",
        "esclusa.toml: poll_seconds: 'soon' is not a number",
        "esclusa.toml: stoer is not a setting; did you mean store?",
    ):
        assert name in text
    assert "hunter2" not in text


def test_an_unknown_table_is_a_fault_unless_it_is_a_built_in_pipeline(
    empty_folder: Path,
) -> None:
    (empty_folder / "esclusa.toml").write_text("[medai]\nx = 1\n")
    assert faults_of(environ={}) == ["esclusa.toml: medai is not a setting; did you mean media?"]
    (empty_folder / "esclusa.toml").write_text("[media]\nx = 1\n")
    assert [plan.name for plan in load(environ={"ESCLUSA_PIPELINES": "replies"}).plans] == [
        "replies"
    ]


def test_broken_toml_is_reported_with_its_line(empty_folder: Path) -> None:
    (empty_folder / "esclusa.toml").write_text("port = \n")
    assert "esclusa.toml: it is not TOML" in faults_of(environ={})[0]
    assert "line 1" in faults_of(environ={})[0]


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://x.db",
        "sqlite:x.db",
        "sqlite:///",
        "sqlite:////",
        "sqlite:///:memory:",
        "postgresql://host",
        "redis://x/1",
        "",
        "x",
    ],
)
def test_store_urls_that_are_refused(url: str) -> None:
    assert faults_of(environ={}, overrides={"store": url})[0].startswith("--store: ")


@pytest.mark.parametrize(
    "url", ["sqlite:///a.db", "sqlite:////var/a.db", "postgresql://u:p@h:5432/d", "postgres:///d"]
)
def test_store_urls(url: str) -> None:
    assert load(environ={"ESCLUSA_STORE": url}).store == url


def test_secrets_from_mounted_files(empty_folder: Path) -> None:
    (empty_folder / "hook").write_text("https://alerts.example/x\n")
    settings = load(environ={"ESCLUSA_ALERT_WEBHOOK_FILE": "hook"})
    assert settings.alert_webhook is not None
    assert settings.alert_webhook.get_secret_value() == "https://alerts.example/x"
    assert "alerts.example" not in repr(settings)
    assert faults_of(environ={"ESCLUSA_ALERT_WEBHOOK_FILE": "none"}) == [
        "ESCLUSA_ALERT_WEBHOOK_FILE: 'none' cannot be read: No such file or directory"
    ]
    (empty_folder / "empty").write_text("\n")
    assert faults_of(environ={"ESCLUSA_ALERT_WEBHOOK_FILE": "empty"}) == [
        "ESCLUSA_ALERT_WEBHOOK_FILE: 'empty' is empty"
    ]
    both = {"ESCLUSA_ALERT_WEBHOOK_FILE": "hook", "ESCLUSA_ALERT_WEBHOOK": "https://x.example"}
    assert faults_of(environ=both) == [
        "ESCLUSA_ALERT_WEBHOOK and ESCLUSA_ALERT_WEBHOOK_FILE are both set; keep one of them"
    ]


def test_an_empty_environment_value_is_not_set() -> None:
    assert load(environ={"PORT": "", "ESCLUSA_API_TOKENS": ""}).port == 8082


def test_api_tokens() -> None:
    tokens = load(
        environ={"ESCLUSA_API_TOKENS": "plain, r3ad:read,ana=abc:operate,base64==,bob=YWJj=="}
    ).api_tokens
    assert [(t.name, t.secret.get_secret_value(), t.role) for t in tokens] == [
        ("token-1", "plain", "operate"),
        ("token-2", "r3ad", "read"),
        ("ana", "abc", "operate"),
        ("token-4", "base64==", "operate"),
        ("bob", "YWJj==", "operate"),
    ]


@pytest.mark.parametrize("text", ["a:write", ":read", "a b=x", "x,x", "n=x,n=y"])
def test_api_tokens_that_are_refused(text: str) -> None:
    fault = faults_of(environ={"ESCLUSA_API_TOKENS": text})[0]
    assert fault.startswith("ESCLUSA_API_TOKENS: (secret): ")


def test_unknown_names_in_the_environment_are_reported_not_refused() -> None:
    settings = load(environ={"ESCLUSA_STOER": "x", "ESCLUSA_PORT_FILE": "", "OTHER": "y"})
    assert settings.unknown == ("ESCLUSA_STOER is not a setting; did you mean ESCLUSA_STORE?",)


def test_a_pipelines_own_settings(empty_folder: Path) -> None:
    (empty_folder / "esclusa.toml").write_text(
        'pipelines = ["post"]\n[post]\ncity = "Arica"\nper_day = 2\nunnamed = true\n'
    )
    settings = load(
        environ={"POST_PER_DAY": "7", "POST_ROUTES": "a, b", "POST_KEY": "s3cret"}, apps=only_post
    )
    own = settings.plans[0].settings
    assert isinstance(own, PostSettings)
    assert (own.city, own.per_day, own.routes, own.unnamed) == ("Arica", 7, ["a", "b"], True)
    assert settings.plans[0].stages[0].concurrency == 7
    assert settings.sources["post.per_day"] == "POST_PER_DAY"
    assert (
        load(environ={"POST_UNNAMED": "true", "ESCLUSA_PIPELINES": "post"}, apps=only_post)
        .plans[0]
        .settings.unnamed
    )  # type: ignore[attr-defined]


def test_faults_in_a_pipelines_own_settings(empty_folder: Path) -> None:
    (empty_folder / "esclusa.toml").write_text('pipelines = ["post"]\n[post]\ncitty = "Arica"\n')
    assert faults_of(environ={}, apps=only_post) == [
        "esclusa.toml: post.citty is not a setting; did you mean city?"
    ]
    (empty_folder / "esclusa.toml").write_text('pipelines = ["post"]\npost = 3\n')
    assert (
        faults_of(environ={}, apps=only_post)[0] == "esclusa.toml: post: it must be a table, [post]"
    )


def test_a_missing_required_setting_is_reported() -> None:
    class Needs(BaseModel):
        key: str = option("POST_KEY", help="The carrier's key.")

    faults = faults_of(environ={"ESCLUSA_PIPELINES": "post"}, apps=lambda _name: post_app(Needs))
    assert faults == ["POST_KEY is not set (in the file: post.key): The carrier's key."]


def test_two_pipelines_with_the_same_name_are_refused() -> None:
    faults = faults_of(environ={"ESCLUSA_PIPELINES": "post,post"}, apps=only_post)
    assert faults == ["ESCLUSA_PIPELINES: 'post': the name post is taken"]


def test_a_pipeline_file_can_import_modules_beside_it(
    empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    (empty_folder / "pipes").mkdir()
    (empty_folder / "pipes" / "beside_the_pipe.py").write_text("NAME = 'aside'\n")
    (empty_folder / "pipes" / "aside.py").write_text(
        "from beside_the_pipe import NAME\nfrom esclusa import App\napp = App(NAME)\n"
    )
    assert [plan.name for plan in load(environ={"ESCLUSA_PIPELINES": "pipes/aside.py"}).plans] == [
        "aside"
    ]


SHARED = """
from esclusa import App, Lifecycle, Record
class {name}(Record, table="{table}"):
    lifecycle = Lifecycle("new -> done")
app = App("{pipeline}", records=[{name}])
"""


def test_a_table_belongs_to_one_pipeline(empty_folder: Path) -> None:
    for name, table, pipeline in (
        ("One", "people", "first"),
        ("Two", "People", "second"),
        ("Three", "esclusa_runs", "third"),
    ):
        (empty_folder / f"{pipeline}.py").write_text(
            SHARED.format(name=name, table=table, pipeline=pipeline)
        )
    assert faults_of(environ={"ESCLUSA_PIPELINES": "first.py,second.py,third.py"}) == [
        "ESCLUSA_PIPELINES: 'second.py': record Two: the table People is used by first already",
        (
            "ESCLUSA_PIPELINES: 'third.py' is declared wrongly: record Three: esclusa_runs: "
            "only the names of Esclusa's own tables begin with esclusa_ (third.py, line 3)"
        ),
    ]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nobody", "one of replies"),
        ("no.such.module:app", "cannot be loaded"),
        ("none.py:app", "there is no file"),
        ("json:dumps", "not an App"),
        ("broken.py", "ZeroDivisionError: division by zero (broken.py, line 2)"),
        ("wrong.py", "declared wrongly"),
        ("wrong.py", "(wrong.py, line 2)"),
        ("helped.py", "(broken.py, line 2)"),
        ("other.py", "other.py has no 'app'; it has other.py:mine"),
        ("json", "one of replies"),
        ("json:app", "json has no 'app'; write"),
    ],
)
def test_pipelines_that_cannot_be_loaded(empty_folder: Path, name: str, why: str) -> None:
    (empty_folder / "broken.py").write_text("import json\n1 / 0\n")
    (empty_folder / "helped.py").write_text("import broken\n")
    (empty_folder / "other.py").write_text("from esclusa import App\nmine = App('other')\n")
    (empty_folder / "wrong.py").write_text(
        "from esclusa import Lifecycle\nLifecycle('a -> b\\nc -> b')\n"
    )
    assert why in faults_of(environ={"ESCLUSA_PIPELINES": name})[0]


def test_every_setting_has_a_description() -> None:
    assert {o.field for o in SYSTEM_OPTIONS} == set(Settings.model_fields) - {
        "plans",
        "config",
        "sources",
        "unknown",
    }
    for each in SYSTEM_OPTIONS:
        assert each.help.endswith("."), each.field
        assert all(name == "PORT" or name.startswith("ESCLUSA_") for name in each.env)


def test_options_describe_what_they_accept() -> None:
    words = {o.field: (o.allowed, o.secret, o.many) for o in options_of(PostSettings, "post")}
    assert words["per_day"] == ("a whole number, 1 or more", False, False)
    assert words["routes"] == ("a list, separated by commas", False, True)
    assert words["key"][1]


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("::", False),
        ("x.y", False),
    ],
)
def test_loopback(host: str, own: bool) -> None:
    assert is_loopback(host) is own


def test_urls_are_shown_without_passwords() -> None:
    assert without_password("postgresql://u:p:w@h/d") == "postgresql://u:***@h/d"
    assert without_password("postgresql://u:p@one,two:2/d") == "postgresql://u:***@one,two:2/d"
    assert without_password("postgresql://h/d?a=b&password=p&c") == (
        "postgresql://h/d?a=b&password=***&c"
    )
    assert without_password("sqlite:///a.db") == "sqlite:///a.db"


def test_blanks_around_a_secret_are_removed() -> None:
    """A pasted line end would break signatures; blanks alone would be a guessable secret."""
    environ = {
        "ESCLUSA_PIPELINES": "media",
        "META_APP_SECRET": " abc d\n",
        "META_VERIFY_TOKEN": " \t",
    }
    [plan] = load(environ=environ).plans
    assert isinstance(plan.settings, MediaSettings)
    assert plan.settings.app_secret is not None
    assert plan.settings.app_secret.get_secret_value() == "abc d"
    assert plan.settings.verify_token is None


@pytest.mark.parametrize(
    ("lease", "stage_lease", "timeout"),
    [("60", None, 10.0), ("15", None, 5.0), ("1", None, 1.0), ("60", 6.0, 2.0), ("3", 60.0, 1.0)],
)
def test_a_call_of_postgresql_takes_a_third_of_the_shortest_lease(
    lease: str, stage_lease: float | None, timeout: float
) -> None:
    from esclusa.app import store_for

    app = App("post")

    @app.stage(Parcel, take="new", retry=None, exhausted="sent", lease=stage_lease)
    async def send(parcel: Parcel, at: Attempt) -> Outcome:
        return To("sent")

    url = "postgresql://me@127.0.0.1/none"
    environ = {"ESCLUSA_STORE": url, "ESCLUSA_LEASE_SECONDS": lease, "ESCLUSA_PIPELINES": "post"}
    store: Any = store_for(load(environ=environ, apps=lambda _: app))
    assert store._connections.limits.statement == timeout
