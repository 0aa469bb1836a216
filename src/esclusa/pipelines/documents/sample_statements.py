"""Small statements as PDFs, to try the pipeline without documents of one's own."""

from __future__ import annotations

from random import Random

_CHAR_WIDTHS = {",": 0.278, ".": 0.278, "(": 0.333, ")": 0.333, "-": 0.333, " ": 0.278}
_ROWS: dict[str, list[tuple[str, list[str], str]]] = {
    "balance_sheet": [
        (
            "Activos corrientes",
            ["Efectivo y equivalentes al efectivo", "Deudores comerciales", "Inventarios"],
            "Total activos corrientes",
        ),
        (
            "Activos no corrientes",
            ["Propiedades, planta y equipo", "Plusvalía"],
            "Total activos no corrientes",
        ),
        (
            "Patrimonio",
            ["Capital emitido", "Ganancias acumuladas", "Otras reservas"],
            "Total patrimonio",
        ),
    ],
    "income_statement": [
        (
            "Resultado operacional",
            ["Ingresos ordinarios", "Costo de ventas", "Gastos de administración"],
            "Total resultado operacional",
        ),
        (
            "Resultado no operacional",
            ["Ingresos financieros", "Costos financieros"],
            "Total resultado no operacional",
        ),
    ],
    "cash_flow": [
        (
            "Actividades de operación",
            ["Cobros a clientes", "Pagos a proveedores", "Pagos a empleados"],
            "Total actividades de operación",
        ),
        (
            "Actividades de inversión",
            ["Compras de propiedades, planta y equipo", "Intereses recibidos"],
            "Total actividades de inversión",
        ),
    ],
}
_TITLES = {
    "balance_sheet": "Estado de Situación Financiera Clasificado",
    "income_statement": "Estado de Resultados por Función",
    "cash_flow": "Estado de Flujos de Efectivo",
}


def statement(doc_type: str, org: str, year: int, rng: Random) -> bytes:
    """Return a statement of two years, in thousands of Chilean pesos."""
    texts: list[tuple[float, float, float, str]] = []
    y = 740.0
    for size, text in (
        (14, org),
        (11, _TITLES[doc_type]),
        (10, f"Al 31 de diciembre de {year} y {year - 1}"),
        (9, "(Expresado en miles de pesos chilenos)"),
    ):
        texts.append((60, y, size, text))
        y -= 1.7 * size
    y -= 12
    texts += [
        (380.0, y, 9, "Nota"),
        (right_aligned(460, f"31-12-{year}", 9), y, 9, f"31-12-{year}"),
        (right_aligned(550, f"31-12-{year - 1}", 9), y, 9, f"31-12-{year - 1}"),
    ]
    for section, labels, total in _ROWS[doc_type]:
        y -= 20
        texts.append((60, y, 9.5, section))
        for label in [*labels, total]:
            y -= 15
            texts.append((60 if label == total else 72, y, 9, label))
            if label != total:
                texts.append((386, y, 9, str(rng.randrange(3, 30))))
            for edge in (460, 550):
                printed = _printed(rng.randrange(1_000, 9_000_000), negative=rng.random() < 0.2)
                texts.append((right_aligned(edge, printed, 9), y, 9, printed))
    return pdf(texts)


def _printed(number: int, *, negative: bool) -> str:
    text = f"{number:,}".replace(",", ".")
    return f"({text})" if negative else text


def right_aligned(edge: float, text: str, size: float) -> float:
    """Return where a text of Helvetica starts to end at ``edge``."""
    return edge - size * sum(_CHAR_WIDTHS.get(char, 0.556) for char in text)


def pdf(texts: list[tuple[float, float, float, str]]) -> bytes:
    """Return a PDF with one page of texts, each (x, y, size, text), in points from the bottom."""
    stream = "\n".join(
        f"BT /F1 {size:g} Tf {x:.2f} {y:.2f} Td ({_escaped(text)}) Tj ET"
        for x, y, size, text in texts
    ).encode("cp1252", "replace")
    parts = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        (
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources "
            b"<< /Font << /F1 5 0 R >> >> >>"
        ),
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    out, offsets = b"%PDF-1.4\n", []
    for number, part in enumerate(parts, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, part)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    trailer = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (
        len(parts) + 1,
        len(out),
    )
    return out + b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(parts) + 1, table) + trailer


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
