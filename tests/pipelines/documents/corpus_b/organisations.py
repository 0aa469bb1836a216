"""Countries and organisations: names, currencies and their wording."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Country:
    """A country: currency, thousands separator, tax number and units by scale."""

    currency: str
    thousands: str
    tax: str
    city: str
    units: dict[int, tuple[str, ...]]


def _words(money: str, sign: str, short: tuple[str, str] = ("", "")) -> dict[int, tuple[str, ...]]:
    return {
        1: (f"(Expresado en {money})", f"Cifras en {money}", f"Moneda: {money} ({sign})"),
        1_000: (
            f"(Expresado en miles de {money})",
            f"Cifras en miles de {money}",
            f"Valores en miles de {money} ({sign})",
        )
        + (
            (f"(Cifras en {short[0]})", f"Expresado en miles de pesos ({short[0]})")
            if short[0]
            else ()
        ),
        1_000_000: (f"(Expresado en millones de {money})", f"Cifras en millones de {money}")
        + ((f"(Cifras en {short[1]})",) if short[1] else ()),
    }


COUNTRIES = {
    "cl": Country(
        "CLP", ".", "RUT 76.418.205-K", "Santiago", _words("pesos chilenos", "CLP", ("M$", "MM$"))
    ),
    "mx": Country("MXN", ",", "RFC FBN980412QX7", "León, Gto.", _words("pesos mexicanos", "MXN")),
    "co": Country(
        "COP", ".", "NIT 900.317.446-2", "Bogotá D.C.", _words("pesos colombianos", "COP")
    ),
    "pe": Country("PEN", ",", "RUC 20538841907", "Arequipa", _words("soles", "S/")),
    "ar": Country("ARS", ".", "CUIT 30-70918364-5", "Rosario", _words("pesos argentinos", "ARS")),
    "ec": Country(
        "USD",
        ",",
        "RUC 1792048817001",
        "Ambato",
        _words("dólares de los Estados Unidos de América", "US$"),
    ),
    "py": Country("PYG", ".", "RUC 80026174-3", "Asunción", _words("guaraníes", "Gs.")),
    "uy": Country("UYU", ".", "RUT 21 483920 0015", "Montevideo", _words("pesos uruguayos", "UYU")),
    "bo": Country("BOB", ",", "NIT 1028374025", "Cochabamba", _words("bolivianos", "Bs")),
    "gt": Country("GTQ", ",", "NIT 482917-6", "Quetzaltenango", _words("quetzales", "Q")),
    "cr": Country(
        "CRC",
        "\u00a0",
        "Cédula jurídica 3-004-045117",
        "San José",
        _words("colones costarricenses", "CRC"),
    ),
    "us": Country(
        "USD",
        ".",
        "RUT 96.530.118-4",
        "Puerto Montt",
        {
            1: ("Cifras en dólares estadounidenses",),
            1_000: (
                "(Cifras en miles de dólares estadounidenses, MUS$)",
                "Expresado en miles de dólares de los Estados Unidos (MUS$)",
            ),
            1_000_000: ("Cifras en millones de dólares estadounidenses",),
        },
    ),
    "es": Country("EUR", ".", "NIF B97204416", "Valencia", _words("euros", "€")),
}

ORGS = {
    "erp balance_sheet": (
        "mx FERRETERIA Y BLINDAJES DEL NORTE SA DE CV",
        "mx PLASTICOS IZTACA SA DE CV",
        "mx ABARROTES EL MEZQUITE S DE RL DE CV",
    ),
    "erp income_statement": (
        "co DISTRIBUIDORA LOS ALISOS S.A.S.",
        "co MOLINOS QUEBRADA HONDA S.A.",
        "co ALMACENES TUNDAMA LTDA",
    ),
    "holding": (
        "cl Inversiones Puelche S.A. y Filiales",
        "us Corporación Maipo Austral S.A.",
        "pe Grupo Andino Quimsa S.A.A.",
        "co Grupo Sumapaz S.A.",
    ),
    "cooperativa": (
        "ec Cooperativa de Ahorro y Crédito Sumak Llaqta Ltda.",
        "py Cooperativa Multiactiva Ñandejara Ltda.",
        "cr Coopesierra R.L.",
        "bo Cooperativa La Esperanza del Valle R.L.",
    ),
    "formulario_es": (
        "es TALLERES HERMANOS BOQUERA SL",
        "es CONSERVAS RÍA DE NOYA SL",
        "es LOGÍSTICA PLA DE QUART SA",
    ),
    "formulario_ec": (
        "ec TEXTILES COTALÓ CIA. LTDA.",
        "ec AGROINDUSTRIAS EL CORAZÓN S.A.",
        "ec IMPORTADORA TOMEBAMBA SUR C.A.",
    ),
    "auditor balance_sheet": (
        "-- Willow Creek Montessori School, Inc.",
        "-- Harbor Light Community Services",
        "-- The Pemberton Art Foundation",
    ),
    "auditor cash_flow": (
        "-- Kessler Millwork, LLC",
        "-- Three Forks Irrigation Supply, LLC",
        "-- Dunmore Elevator Company, LLC",
    ),
    "planilla": (
        "cl Comercial Raúl Yáñez e Hijos Ltda.",
        "ar Panificadora Doña Berta SRL",
        "uy Vidriería El Prisma S.A.",
        "cl Transportes Quilapán SpA",
    ),
    "municipio": (
        "mx Municipio de San Jerónimo Tlalixpan",
        "ar Municipalidad de Villa Los Aromos",
        "mx Municipio de Santa Rosa del Xocotal",
    ),
    "fundacion": (
        "co Fundación Semilla de Barro",
        "es Asociación Camino Abierto",
        "cl Corporación Manos al Agua",
        "pe Fundación Tierra Propia",
    ),
    "interim": (
        "gb Brackenridge Foods plc",
        "ch Alpstein Precision Holding AG",
        "gb Northmoor Logistics Group plc",
        "us Sable Bay Resources Inc.",
    ),
    "boardpack": (
        "us Parcelly, Inc.",
        "gb Tidewheel Labs Ltd",
        "us Kumquat Health, Inc.",
        "gb Loomly Grid Ltd",
    ),
}


def random_organisation(rng: Random, origin: str) -> tuple[str, str]:
    """Return an organisation and the key of its country."""
    country, _, org = rng.choice(ORGS[origin]).partition(" ")
    return org, country


def units(rng: Random, country: Country, scale: int) -> str:
    """Return the line that names the unit."""
    return rng.choice(country.units[scale])
