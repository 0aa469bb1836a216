"""Documents that are no statements: invoice, price list, payslip, bank account, letter."""

from __future__ import annotations

from random import Random

from pipelines.documents.corpus_b.model import Numbers
from pipelines.documents.corpus_b.organisations import COUNTRIES
from pipelines.documents.corpus_b.printed_statements import esc, foot, printed
from pipelines.documents.drawing import Statement
from playwright.sync_api import Page

GOODS = (
    "Tubo PVC hidráulico 110 mm",
    "Cemento gris saco 25 kg",
    "Pintura látex blanca galón",
    "Disco de corte 7 pulgadas",
    "Cable THHN 12 AWG rollo",
    "Llave de paso bronce",
    "Plancha zinc acanalada",
    "Guante de cabritilla",
    "Broca para concreto",
    "Cerradura de sobreponer",
)


def otros(rng: Random, page: Page) -> Statement:
    """Return one of the documents at random."""
    country, kind = (
        COUNTRIES[rng.choice(("cl", "mx", "co", "pe"))],
        rng.choice((_invoice, _prices, _payslip, _bank, _letter)),
    )
    shops = ("Ferretería La Tuerca Ltda.", "Suministros Aconcagua S.A.", "Materiales Nogal S.A.")
    org = rng.choice(("Banco del Litoral", "Banco Unión Austral") if kind is _bank else shops)
    title, body = kind(
        rng, org, Numbers(country.thousands, 0, "minus", "0"), rng.randint(2020, 2025)
    )
    line = rng.choice(("#999", "#ddd", "#fff"))
    css = f"body {{ --grid: {line} }}"
    head = f"<p><b>{esc(org)}</b><br>{country.tax} · {country.city}</p><h1>{title}</h1>"
    content = printed(
        page, "otros", head + body, css, "Letter", False, foot(org) if rng.random() < 0.4 else ""
    )
    return Statement("otros", "other", content, [], org, title, country.currency, 1)


def _table(heads: list[str], rows: list[list[str]], words: int = 1) -> str:
    def line(cells: list[str], tag: str) -> str:
        return (
            "<tr>"
            + "".join(
                f"<{tag} class='{'n' if i >= words else 't'}'>{esc(c)}</{tag}>"
                for i, c in enumerate(cells)
            )
            + "</tr>"
        )

    body = "".join(line(r, "td") for r in rows)
    return f"<table><thead>{line(heads, 'th')}</thead><tbody>{body}</tbody></table>"


def _invoice(rng: Random, org: str, numbers: Numbers, year: int) -> tuple[str, str]:
    rows, net = [], 0
    for good in rng.sample(GOODS, rng.randint(3, 7)):
        many, price = rng.randint(1, 60), rng.randint(900, 48000)
        net += many * price
        rows.append([good, str(many), numbers.text(price), numbers.text(many * price)])
    tax = round(net * 0.19)
    rows += [
        ["Neto", "", "", numbers.text(net)],
        ["IVA 19%", "", "", numbers.text(tax)],
        ["Total a pagar", "", "", numbers.text(net + tax)],
    ]
    day = f"{rng.randint(1, 28):02}/{rng.randint(1, 12):02}/{year}"
    top = (
        f"<p>N° {rng.randint(10000, 99999)}<br>Fecha de emisión: {day}<br>Señores: Constructora "
        f"Los Peumos</p>"
    )
    return "FACTURA ELECTRÓNICA", top + _table(
        ["Descripción", "Cantidad", "Precio unitario", "Total"], rows
    )


def _prices(rng: Random, org: str, numbers: Numbers, year: int) -> tuple[str, str]:
    rows = [
        [
            f"{rng.randint(1000, 9999)}",
            g,
            "UN",
            numbers.text(p := rng.randint(500, 90000)),
            numbers.text(round(p * 0.9)),
        ]
        for g in GOODS
    ]
    return f"LISTA DE PRECIOS {year}", "<p>Valores sujetos a cambio sin previo aviso</p>" + _table(
        ["Código", "Artículo", "Unidad", "Detalle", "Mayorista"], rows, 3
    )


def _payslip(rng: Random, org: str, numbers: Numbers, year: int) -> tuple[str, str]:
    pay, extra, food = (
        rng.randint(600, 2400) * 1000,
        rng.randint(10, 200) * 1000,
        rng.randint(30, 60) * 1000,
    )
    cuts = [
        ("Cotización previsional", round(pay * 0.1127)),
        ("Salud", round(pay * 0.07)),
        ("Seguro de cesantía", round(pay * 0.006)),
    ]
    rows = [
        ["Sueldo base", numbers.text(pay)],
        ["Horas extraordinarias", numbers.text(extra)],
        ["Colación y movilización", numbers.text(food)],
    ]
    rows += [
        ["Total haberes", numbers.text(pay + extra + food)],
        *([n, numbers.text(v)] for n, v in cuts),
    ]
    rows += [
        ["Total descuentos", numbers.text(sum(v for _, v in cuts))],
        ["Líquido a pagar", numbers.text(pay + extra + food - sum(v for _, v in cuts))],
    ]
    month = rng.choice(("marzo", "abril", "octubre"))
    top = (
        f"<p>Mes: {month} de {year}<br>Trabajador: Jorge Antonio Paillán Ríos<br>Cargo: "
        f"Operario de bodega<br>Días trabajados: 30</p>"
    )
    return "LIQUIDACIÓN DE SUELDO", top + _table(["Concepto", "Monto"], rows)


def _bank(rng: Random, org: str, numbers: Numbers, year: int) -> tuple[str, str]:
    month, balance, rows = rng.randint(1, 12), rng.randint(500, 9000) * 1000, []
    for day in sorted(rng.sample(range(1, 28), rng.randint(10, 20))):
        amount = rng.randint(1500, 900000) * rng.choice((1, -1))
        balance += amount
        what = (
            rng.choice(
                ("Transferencia a terceros", "Pago cheque", "Compra con débito", "Cargo PAC")
            )
            if amount < 0
            else rng.choice(("Abono transferencia", "Depósito"))
        )
        rows.append(
            [
                f"{day:02}/{month:02}",
                what,
                numbers.text(-amount) if amount < 0 else "",
                numbers.text(amount) if amount > 0 else "",
                numbers.text(balance),
            ]
        )
    top = (
        f"<p>Cuenta corriente 0-{rng.randint(100, 999)}-{rng.randint(10000, 99999)}<br>Período: "
        f"{month:02}/{year}</p>"
    )
    return "CARTOLA DE CUENTA CORRIENTE", top + _table(
        ["Fecha", "Movimiento", "Cargos", "Abonos", "Saldo"], rows, 2
    )


def _letter(rng: Random, org: str, numbers: Numbers, year: int) -> tuple[str, str]:
    owed, fee = rng.randint(400, 9000) * 1000, rng.randint(10, 90) * 1000
    body = (
        f"<p>{rng.randint(2, 27)} de mayo de {year}</p><p>Estimado cliente:</p><p>Le "
        f"recordamos que su cuenta registra un saldo pendiente "
        f"de {numbers.text(owed)} correspondiente a {rng.randint(2, 6)} facturas vencidas. "
        f"De regularizar antes del 30 de junio de {year}, "
        f"se condonarán intereses por {numbers.text(fee)}. Puede acordar un convenio de "
        f"hasta 12 cuotas en cualquiera de nuestras "
        "oficinas.</p><p>Atentamente,<br>Departamento de Cobranza</p>"
    )
    return "AVISO DE COBRANZA", body
