"""The words of made-up statements: two sets that share as little as real statements allow."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

Sections = list[tuple[str, list[str], str]]


@dataclass(frozen=True)
class Line:
    kind: str
    label: str


@dataclass(frozen=True)
class Words:
    orgs: dict[str, list[str]]
    titles: dict[str, dict[str, list[str]]]
    sections: dict[str, dict[str, Sections]]


def rows(words: Words, lang: str, doc_type: str, count: int, rng: Random) -> list[Line]:
    """Return about ``count`` sections with items and totals; long tables repeat sections."""
    out: list[Line] = []
    cycle = 0
    while len(out) < count:
        for header, items, total in words.sections[lang][doc_type]:
            chosen = [i for i in items if rng.random() < 0.85] or items[:1]
            mark = (
                ""
                if cycle == 0
                else f" ({'serie' if lang == 'es' else 'series'} {'ABCDEFGH'[cycle % 8]})"
            )
            out.append(Line("section", header + mark))
            out += [Line("item", item + mark) for item in chosen]
            out.append(Line("total", total + mark))
        cycle += 1
    return out


TUNED = Words(
    orgs={
        "es": [
            "Inversiones Los Andes S.A.",
            "Comercial Pacífico SpA",
            "Constructora Río Claro Limitada",
            "Viña Santa Elena S.A. y Filiales",
            "Agrícola El Peumo Ltda.",
        ],
        "en": [
            "Northwind Holdings, Inc.",
            "Blue Harbor Shipping Ltd.",
            "Cedar Creek Foods Corporation",
            "Granite Peak Energy LLC",
            "Atlas Tools, Inc. and Subsidiaries",
        ],
    },
    titles={
        "es": {
            "balance_sheet": [
                "Estado de Situación Financiera Clasificado",
                "Balance General",
                "Estados Consolidados de Situación Financiera",
            ],
            "income_statement": [
                "Estado de Resultados por Función",
                "Estado de Resultados Integrales",
                "Estados Consolidados de Resultados",
            ],
            "cash_flow": [
                "Estado de Flujos de Efectivo",
                "Estado de Flujo de Efectivo Método Directo",
                "Estados Consolidados de Flujos de Efectivo",
            ],
        },
        "en": {
            "balance_sheet": [
                "Consolidated Balance Sheets",
                "Statement of Financial Position",
                "Balance Sheet",
            ],
            "income_statement": [
                "Consolidated Statements of Income",
                "Income Statement",
                "Statements of Operations",
            ],
            "cash_flow": [
                "Consolidated Statements of Cash Flows",
                "Statement of Cash Flows",
                "Cash Flow Statement",
            ],
        },
    },
    sections={
        "es": {
            "balance_sheet": [
                (
                    "Activos corrientes",
                    [
                        "Efectivo y equivalentes al efectivo",
                        "Otros activos financieros, corrientes",
                        "Deudores comerciales y otras cuentas por cobrar",
                        "Cuentas por cobrar a entidades relacionadas, corrientes",
                        "Inventarios",
                        "Activos por impuestos corrientes",
                    ],
                    "Total activos corrientes",
                ),
                (
                    "Activos no corrientes",
                    [
                        "Propiedades, planta y equipo",
                        "Activos intangibles distintos de la plusvalía",
                        "Plusvalía",
                        "Activos por impuestos diferidos",
                    ],
                    "Total activos no corrientes",
                ),
                (
                    "Pasivos corrientes",
                    [
                        "Otros pasivos financieros, corrientes",
                        "Cuentas por pagar comerciales y otras cuentas por pagar",
                        "Provisiones por beneficios a los empleados",
                        "Pasivos por impuestos corrientes",
                    ],
                    "Total pasivos corrientes",
                ),
                (
                    "Patrimonio",
                    ["Capital emitido", "Ganancias acumuladas", "Otras reservas"],
                    "Total patrimonio",
                ),
            ],
            "income_statement": [
                (
                    "Ganancia",
                    [
                        "Ingresos de actividades ordinarias",
                        "Costo de ventas",
                        "Gastos de administración",
                        "Otros gastos, por función",
                    ],
                    "Total resultado operacional",
                ),
                (
                    "Resultado no operacional",
                    [
                        "Ingresos financieros",
                        "Costos financieros",
                        "Diferencias de cambio",
                        (
                            "Participación en las ganancias de asociadas y negocios conjuntos "
                            "que se contabilicen utilizando el método de la participación"
                        ),
                    ],
                    "Total resultado no operacional",
                ),
                (
                    "Resultado del ejercicio",
                    [
                        "Ganancia antes de impuestos",
                        "Gasto por impuestos a las ganancias",
                        "Ganancia del ejercicio",
                    ],
                    "Total resultado integral",
                ),
            ],
            "cash_flow": [
                (
                    "Flujos de efectivo procedentes de actividades de operación",
                    [
                        "Cobros procedentes de las ventas de bienes y prestación de servicios",
                        "Pagos a proveedores por el suministro de bienes y servicios",
                        "Pagos a y por cuenta de los empleados",
                        "Intereses pagados",
                    ],
                    "Total flujos de operación",
                ),
                (
                    "Flujos de efectivo procedentes de actividades de inversión",
                    [
                        "Compras de propiedades, planta y equipo",
                        "Importes procedentes de la venta de activos",
                        "Dividendos recibidos",
                    ],
                    "Total flujos de inversión",
                ),
                (
                    "Flujos de efectivo procedentes de actividades de financiación",
                    [
                        "Importes procedentes de préstamos",
                        "Pagos de préstamos",
                        "Dividendos pagados",
                    ],
                    "Total flujos de financiación",
                ),
            ],
        },
        "en": {
            "balance_sheet": [
                (
                    "Current assets",
                    [
                        "Cash and cash equivalents",
                        "Marketable securities",
                        "Accounts receivable, net",
                        "Inventories",
                        "Prepaid expenses and other current assets",
                    ],
                    "Total current assets",
                ),
                (
                    "Non-current assets",
                    [
                        "Property, plant and equipment, net",
                        "Goodwill",
                        "Intangible assets, net of accumulated amortization",
                        "Deferred tax assets",
                    ],
                    "Total non-current assets",
                ),
                (
                    "Current liabilities",
                    [
                        "Accounts payable",
                        "Accrued expenses and other current liabilities",
                        "Current portion of long-term debt",
                        "Deferred revenue",
                    ],
                    "Total current liabilities",
                ),
                (
                    "Shareholders' equity",
                    [
                        "Common stock",
                        "Additional paid-in capital",
                        "Retained earnings",
                        "Accumulated other comprehensive loss",
                    ],
                    "Total shareholders' equity",
                ),
            ],
            "income_statement": [
                (
                    "Revenue",
                    ["Product sales", "Service revenue", "Cost of goods sold"],
                    "Total gross margin",
                ),
                (
                    "Operating expenses",
                    [
                        "Research and development",
                        "Selling, general and administrative",
                        "Depreciation and amortization",
                        "Restructuring charges",
                    ],
                    "Total operating expenses",
                ),
                (
                    "Other income (expense)",
                    [
                        "Interest income",
                        "Interest expense",
                        "Foreign exchange gain (loss)",
                        "Provision for income taxes",
                    ],
                    "Total net income",
                ),
            ],
            "cash_flow": [
                (
                    "Cash flows from operating activities",
                    [
                        "Net income",
                        "Depreciation and amortization",
                        "Stock-based compensation expense",
                        "Changes in accounts receivable, net of effects of acquisitions",
                    ],
                    "Total cash from operating activities",
                ),
                (
                    "Cash flows from investing activities",
                    [
                        "Purchases of property and equipment",
                        "Proceeds from sale of investments",
                        "Acquisitions, net of cash acquired",
                    ],
                    "Total cash from investing activities",
                ),
                (
                    "Cash flows from financing activities",
                    [
                        "Proceeds from issuance of debt",
                        "Repayments of borrowings",
                        "Dividends paid",
                    ],
                    "Total cash from financing activities",
                ),
            ],
        },
    },
)

HELD_OUT = Words(
    orgs={
        "es": [
            "Minera Quebrada Honda S.A.",
            "Transportes del Sur Limitada",
            "Pesquera Isla Negra SpA",
            "Clínica Las Araucarias S.A.",
            "Forestal Ñuble S.A. y Subsidiarias",
        ],
        "en": [
            "Redwood Materials Company",
            "Silverline Rail plc",
            "Harvest Moon Brands, Inc.",
            "Osprey Medical Limited",
            "Kestrel Group plc",
        ],
    },
    titles={
        "es": {
            "balance_sheet": [
                "Estado Consolidado de Situación Financiera",
                "Balance General Clasificado",
                "Estado de Situación Patrimonial",
            ],
            "income_statement": [
                "Estado de Resultados",
                "Estado Consolidado de Resultados por Naturaleza",
                "Estado de Ganancias y Pérdidas",
            ],
            "cash_flow": [
                "Estado de Flujos de Efectivo, Método Indirecto",
                "Estado Consolidado de Flujos de Efectivo",
            ],
        },
        "en": {
            "balance_sheet": [
                "Consolidated Statement of Financial Position",
                "Statements of Financial Condition",
                "Condensed Balance Sheet",
            ],
            "income_statement": [
                "Consolidated Income Statement",
                "Statement of Profit or Loss",
                "Consolidated Statements of Operations",
            ],
            "cash_flow": [
                "Consolidated Statement of Cash Flows",
                "Condensed Statements of Cash Flows",
            ],
        },
    },
    sections={
        "es": {
            "balance_sheet": [
                (
                    "Activo circulante",
                    [
                        "Disponible",
                        "Depósitos a plazo",
                        "Deudores por venta (neto)",
                        "Documentos por cobrar",
                        "Existencias",
                        "Gastos pagados por anticipado",
                    ],
                    "Total activo circulante",
                ),
                (
                    "Activo fijo",
                    [
                        "Terrenos",
                        "Construcciones y obras de infraestructura",
                        "Maquinarias y equipos",
                        "Depreciación acumulada (menos)",
                    ],
                    "Total activo fijo",
                ),
                (
                    "Pasivo circulante",
                    [
                        "Obligaciones con bancos e instituciones financieras a corto plazo",
                        "Dividendos por pagar",
                        "Proveedores extranjeros",
                        "Retenciones",
                    ],
                    "Total pasivo circulante",
                ),
                (
                    "Patrimonio neto",
                    [
                        "Capital pagado",
                        "Sobreprecio en venta de acciones propias",
                        "Utilidades retenidas",
                        "Pérdida del ejercicio",
                    ],
                    "Total patrimonio neto",
                ),
            ],
            "income_statement": [
                (
                    "Resultado de explotación",
                    [
                        "Ventas netas",
                        "Costos de explotación",
                        "Gastos de administración y ventas",
                        "Depreciación y amortización del ejercicio",
                    ],
                    "Total resultado de explotación",
                ),
                (
                    "Resultado fuera de explotación",
                    [
                        "Utilidad por inversiones en empresas relacionadas",
                        "Gastos financieros",
                        "Corrección monetaria",
                        "Otros egresos fuera de la explotación",
                    ],
                    "Total resultado fuera de explotación",
                ),
                (
                    "Resultado final",
                    [
                        "Resultado antes de impuesto a la renta",
                        "Impuesto a la renta",
                        "Utilidad líquida",
                    ],
                    "Total utilidad del ejercicio",
                ),
            ],
            "cash_flow": [
                (
                    "Actividades de operación",
                    [
                        "Recaudación de deudores por ventas",
                        "Pago a proveedores y personal",
                        "Impuesto al valor agregado y otros similares pagados",
                    ],
                    "Total flujo por actividades de operación",
                ),
                (
                    "Actividades de financiamiento",
                    [
                        "Colocación de acciones de pago",
                        "Obtención de préstamos",
                        "Pago de préstamos documentados de empresas relacionadas",
                    ],
                    "Total flujo por financiamiento",
                ),
                (
                    "Actividades de inversión",
                    [
                        "Ventas de activo fijo",
                        "Incorporación de activos fijos",
                        "Inversiones permanentes",
                    ],
                    "Total flujo por actividades de inversión",
                ),
            ],
        },
        "en": {
            "balance_sheet": [
                (
                    "Assets",
                    [
                        "Cash on hand and at banks",
                        "Trade and other receivables",
                        "Biological assets",
                        "Right-of-use assets",
                        "Investments accounted for using the equity method",
                    ],
                    "Total assets",
                ),
                (
                    "Liabilities",
                    [
                        "Trade and other payables",
                        "Lease liabilities",
                        "Borrowings from credit institutions falling due after one year",
                        "Provisions for decommissioning",
                    ],
                    "Total liabilities",
                ),
                (
                    "Equity",
                    [
                        "Share capital",
                        "Share premium",
                        "Translation reserve",
                        "Treasury shares",
                        "Non-controlling interests",
                    ],
                    "Total equity",
                ),
            ],
            "income_statement": [
                (
                    "Continuing operations",
                    [
                        "Turnover",
                        "Raw materials and consumables used",
                        "Employee benefits expense",
                        "Impairment of goodwill",
                    ],
                    "Total operating result",
                ),
                (
                    "Finance items",
                    [
                        "Finance income",
                        "Finance costs",
                        "Share of profit of associates",
                        "Income tax expense",
                    ],
                    "Total profit for the year",
                ),
            ],
            "cash_flow": [
                (
                    "Operating activities",
                    [
                        "Profit before tax",
                        "Adjustments for non-cash items",
                        "Decrease in trade receivables",
                        "Income taxes paid during the year",
                    ],
                    "Total from operating activities",
                ),
                (
                    "Investing activities",
                    [
                        "Payments for intangible assets",
                        "Loans granted to related parties",
                        "Interest received",
                    ],
                    "Total from investing activities",
                ),
                (
                    "Financing activities",
                    [
                        "Proceeds from the issue of ordinary shares",
                        "Payment of principal portion of lease liabilities",
                        "Buy-back of own shares",
                    ],
                    "Total from financing activities",
                ),
            ],
        },
    },
)
