# SPDX-License-Identifier: Apache-2.0
"""Connections encrypted by PEM files, and files that do not fit, which are named."""

import subprocess
from pathlib import Path

import grpc
import pytest
from served import service_of
from test_calls import refused

from nurec_lite.base.errors import UserError
from nurec_lite.config import ServeConfig
from nurec_lite.service.client import Sensorsim
from nurec_lite.service.tls import credentials


def openssl(words: str, folder: Path) -> None:
    subprocess.run(["openssl", *words.split()], check=True, capture_output=True, cwd=folder)


def certified(folder: Path, name: str) -> dict[str, str]:
    """A certificate of localhost and its key, in files of that name."""
    openssl(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost "
        f"-addext subjectAltName=DNS:localhost -keyout {name}-key.pem -out {name}.pem",
        folder,
    )
    return {"tls_key": str(folder / f"{name}-key.pem"), "tls_certificate": str(folder / f"{name}.pem")}


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return certified(tmp_path_factory.mktemp("pem"), "server")


@pytest.fixture(scope="module")
def misfits(pem: dict[str, str]) -> Path:
    """The folder of the pair, with files that do not fit."""
    folder = Path(pem["tls_key"]).parent
    certified(folder, "other")
    (folder / "cut.pem").write_bytes((folder / "server.pem").read_bytes()[:300])
    openssl("ec -in server-key.pem -aes128 -passout pass:secret -out locked.pem", folder)
    openssl("req -new -key server-key.pem -subj /CN=localhost -out asked.pem", folder)
    (folder / "ca.cnf").write_text(
        "[ca]\ndefault_ca=own\n[own]\ndatabase=index\nrand_serial=yes\nnew_certs_dir=.\npolicy=any\n[any]\ncommonName=supplied\n"
    )
    (folder / "index").touch()
    for name, start, end in (("old", 2020, 2021), ("early", 2048, 2049)):
        openssl(
            f"ca -batch -selfsign -config ca.cnf -keyfile server-key.pem -in asked.pem -md sha256 -notext "
            f"-startdate {start}0101000000Z -enddate {end}0101000000Z -out {name}.pem",
            folder,
        )
        (folder / "index").write_text("")
    return folder


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"tls_key": "other-key.pem"}, "tls_key is .*other-key.pem, which is not the key of .*server.pem; name that one"),
        ({"tls_key": "locked.pem"}, "tls_key is .*locked.pem, which holds no key without a password"),
        ({"tls_key": "server.pem"}, "tls_key is .*server.pem, which holds no key without a password"),
        ({"tls_key": "."}, r"tls_key is .*, which cannot be read \(Is a directory\)"),
        ({"tls_key": "ca.cnf"}, "tls_key is .*ca.cnf, which is no PEM file"),
        ({"tls_certificate": "cut.pem"}, "tls_certificate is .*cut.pem, which holds no whole certificate"),
        ({"tls_certificate": "server-key.pem"}, "tls_certificate is .*server-key.pem, which holds no whole certificate"),
        ({"tls_certificate": "old.pem"}, "tls_certificate is .*old.pem, which has expired; renew it"),
        ({"tls_certificate": "early.pem"}, "tls_certificate is .*early.pem, which is not valid yet; renew it"),
        ({"tls_clients": "locked.pem"}, "tls_clients is .*locked.pem, which holds no whole certificate"),
    ],
    ids=range(10),
)  # fmt: skip
def test_files_that_do_not_fit_are_named(misfits: Path, files: dict[str, str], sentence: str) -> None:
    given = {"tls_key": "server-key.pem", "tls_certificate": "server.pem"} | files
    with pytest.raises(UserError, match=sentence):
        credentials(ServeConfig(**{key: str(misfits / file) for key, file in given.items()}))


def test_connections_are_encrypted_by_files(run: Path, pem: dict[str, str]) -> None:
    certificate = Path(pem["tls_certificate"]).read_bytes()
    with service_of(run, **pem) as service:
        with Sensorsim(f"localhost:{service.port}", certificate=certificate) as client:
            assert list(client.get_available_scenes().scene_ids) == ["mine"]
        with Sensorsim(f"localhost:{service.port}") as client:
            assert refused(lambda: client.get_version(timeout=10))[0] in (
                grpc.StatusCode.UNAVAILABLE,
                grpc.StatusCode.DEADLINE_EXCEEDED,
            )


def test_clients_show_a_certificate_where_one_is_asked_for(run: Path, pem: dict[str, str], misfits: Path) -> None:
    certificate = Path(pem["tls_certificate"]).read_bytes()
    pairs = [
        None,
        *(tuple((misfits / f"{name}{end}.pem").read_bytes() for end in ("-key", "")) for name in ("other", "server")),
    ]
    refusals = []
    with service_of(run, **pem, tls_clients=pem["tls_certificate"]) as service:
        for own in pairs:
            with Sensorsim(f"localhost:{service.port}", certificate=certificate, own=own) as client:
                try:
                    assert client.get_version(timeout=10).version_id == "1.2.3"
                    refusals.append(None)
                except grpc.RpcError as error:
                    refusals.append(error.code())
    assert refusals == [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAVAILABLE, None]
