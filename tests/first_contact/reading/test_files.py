"""Typical files of users, with the expected result: the correct steps, or the exact error."""

# ruff: noqa: E501  (messages as they are printed)

import csv
import datetime
import gzip
import re
import warnings

import pytest
import scipy.sparse

from affect_xp.exceptions import AffectError
from affect_xp.io import read_steps

# File name, text, options; then the steps (time, ids, values) or the error; then warnings.
FILES = {
    "ISO dates": (
        "sales.csv",
        "date,id,x\n2024-01-31,a,1\n2024-02-01,b,2\n",
        {},
        [("2024-01-31", ("a",), [[1.0]]), ("2024-02-01", ("b",), [[2.0]])],
        [],
    ),
    "ISO dates and times": (
        "sales.csv",
        "date,id,x\n2024-01-31 09:30,a,1\n2024-01-31T17:45:30,b,2\n",
        {"freq": "1D"},
        [("2024-01-31", ("a", "b"), [[1.0], [2.0]])],
        [],
    ),
    "days before months, shown by one row": (
        "sales.csv",
        "date,id,x\n31/01/2024,a,1\n01/02/2024,b,2\n13/01/2024,c,3\n",
        {},
        [("2024-01-13", ("c",), [[3.0]]), ("2024-01-31", ("a",), [[1.0]]), ("2024-02-01", ("b",), [[2.0]])],
        [],
    ),
    "days or months, not shown by any row": (
        "sales.csv",
        "date,id,x\n01/02/2024,a,1\n02/03/2024,b,2\n",
        {},
        "column 'date' of {file} is ambiguous: '01/02/2024' is 01 February 2024 by '%d/%m/%Y' and 02 January 2024 by '%m/%d/%Y'; pass time_format='%d/%m/%Y' or time_format='%m/%d/%Y'",
        [],
    ),
    "days or months, with the format": (
        "sales.csv",
        "date,id,x\n01/02/2024,a,1\n02/03/2024,b,2\n",
        {"time_format": "%d/%m/%Y"},
        [("2024-02-01", ("a",), [[1.0]]), ("2024-03-02", ("b",), [[2.0]])],
        [],
    ),
    "days or months that agree": (
        "sales.csv",
        "date,id,x\n05/05/2024,a,1\n06/06/2024,b,2\n",
        {},
        [("2024-05-05", ("a",), [[1.0]]), ("2024-06-06", ("b",), [[2.0]])],
        [],
    ),
    "dates with dots, as in Germany": (
        "umsatz.csv",
        "date,id,x\n31.01.2024,a,1\n01.02.2024,b,2\n",
        {},
        [("2024-01-31", ("a",), [[1.0]]), ("2024-02-01", ("b",), [[2.0]])],
        [],
    ),
    "American dates with a clock of 12 hours": (
        "sales.csv",
        "date,id,x\n01/31/2024 3:04 PM,a,1\n02/01/2024 9:00 AM,b,2\n",
        {},
        [("2024-01-31T15:04:00", ("a",), [[1.0]]), ("2024-02-01T09:00:00", ("b",), [[2.0]])],
        [],
    ),
    "years of two digits": (
        "sales.csv",
        "date,id,x\n31-Jan-24,a,1\n01-Feb-24,b,2\n",
        {},
        [("2024-01-31", ("a",), [[1.0]]), ("2024-02-01", ("b",), [[2.0]])],
        [],
    ),
    "years of two digits that could be days": (
        "sales.csv",
        "date,id,x\n01/02/03,a,1\n02/03/04,b,2\n",
        {},
        "column 'date' of {file} is ambiguous: '01/02/03' is 01 February 2003 by '%d/%m/%y' and 02 January 2003 by '%m/%d/%y'; pass time_format='%d/%m/%y' or time_format='%m/%d/%y'",
        [],
    ),
    "names of months": (
        "sales.csv",
        "date,id,x\n5 Jan 2024,a,1\n6 Feb 2024,b,2\n",
        {},
        [("2024-01-05", ("a",), [[1.0]]), ("2024-02-06", ("b",), [[2.0]])],
        [],
    ),
    "names of months, quoted": (
        "sales.csv",
        'date,id,x\n"Jan 5, 2024",a,1\n"May 6, 2024",b,2\n',
        {},
        [("2024-01-05", ("a",), [[1.0]]), ("2024-05-06", ("b",), [[2.0]])],
        [],
    ),
    "months": (
        "sales.csv",
        "date,id,x\n2024-02,a,1\n2024-01,b,2\n",
        {},
        [("2024-01-01", ("b",), [[2.0]]), ("2024-02-01", ("a",), [[1.0]])],
        [],
    ),
    "quarters": (
        "sales.csv",
        "date,id,x\n2024Q2,a,1\n2024Q1,b,2\n",
        {},
        [("2024-01-01", ("b",), [[2.0]]), ("2024-04-01", ("a",), [[1.0]])],
        [],
    ),
    "ISO weeks": (
        "sales.csv",
        "date,id,x\n2024-W05,a,1\n2023-W50,b,2\n",
        {},
        [("2023-12-11", ("b",), [[2.0]]), ("2024-01-29", ("a",), [[1.0]])],
        [],
    ),
    "labels": (
        "seasons.csv",
        "date,id,x\nspring,a,1\nsummer,b,2\nspring,c,3\n",
        {},
        [("spring", ("a", "c"), [[1.0], [3.0]]), ("summer", ("b",), [[2.0]])],
        [],
    ),
    "times with zones": (
        "calls.csv",
        "date,id,x\n2024-01-31T00:30+01:00,a,1\n2024-01-30T23:30Z,b,2\n",
        {},
        [("2024-01-30T23:30:00", ("a", "b"), [[1.0], [2.0]])],
        [],
    ),
    "times with and without zones": (
        "calls.csv",
        "date,id,x\n2024-01-31T03:04,a,1\n2024-02-01T09:00Z,b,2\n",
        {},
        "line 3 of {file} ('2024-02-01T09:00Z,b,2'): '2024-02-01T09:00Z' in column 'date' mixes times with and without a time zone; convert all to UTC",
        [],
    ),
    "a word among dates": (
        "sales.csv",
        "date,id,x\n2024-01-01,a,1\nsoon,b,2\n2024-01-03,c,3\n",
        {},
        "line 3 of {file} ('soon,b,2'): 'soon' in column 'date' cannot be read as a date",
        [],
    ),
    "a date that does not exist": (
        "sales.csv",
        "date,id,x\n2024-02-28,a,1\n2024-02-30,b,2\n",
        {},
        "line 3 of {file} ('2024-02-30,b,2'): '2024-02-30' in column 'date' cannot be read as a date",
        [],
    ),
    "a missing time": (
        "sales.csv",
        "date,id,x\n2024-02-28,a,1\n,b,2\n",
        {},
        "line 3 of {file} (',b,2') has no time in column 'date'; pass missing='drop' to leave such rows out, or fill it in first",
        [],
    ),
    "a missing time, dropped": (
        "sales.csv",
        "date,id,x\n2024-02-28,a,1\n,b,2\n",
        {"missing": "drop"},
        [("2024-02-28", ("a",), [[1.0]])],
        [],
    ),
    "seconds since 1970 with a freq in days": (
        "log.csv",
        "date,id,x\n1704067200,a,1\n1704672000,b,2\n",
        {"freq": "7D"},
        [("2024-01-01", ("a",), [[1.0]]), ("2024-01-08", ("b",), [[2.0]])],
        ["column 'date' of {file} contains 1704067200, read as 2024-01-01; confirm it with time_format='s'"],
    ),
    "milliseconds since 1970, said": (
        "log.csv",
        "date,id,x\n1704067200000,a,1\n1704672000000,b,2\n",
        {"freq": "7D", "time_format": "ms"},
        [("2024-01-01", ("a",), [[1.0]]), ("2024-01-08", ("b",), [[2.0]])],
        [],
    ),
    "small numbers with a freq in days": (
        "log.csv",
        "date,id,x\n17,a,1\n18,b,2\n",
        {"freq": "7D"},
        "column 'date' of {file} contains numbers such as 17, but freq is a time; pass freq as a number, too, or time_format='s' (since 1970), '%Y%m%d' or '%Y'",
        [],
    ),
    "20240101 with a freq in days": (
        "log.csv",
        "date,id,x\n20240101,a,1\n20240102,b,2\n",
        {"freq": "1D"},
        [("2024-01-01", ("a",), [[1.0]]), ("2024-01-02", ("b",), [[2.0]])],
        [
            "column 'date' of {file} contains 20240101, read as 2024-01-01; confirm it with time_format='%Y%m%d'"
        ],
    ),
    "20240101 with the format": (
        "log.csv",
        "date,id,x\n20240101,a,1\n20240102,b,2\n",
        {"freq": "1D", "time_format": "%Y%m%d"},
        [("2024-01-01", ("a",), [[1.0]]), ("2024-01-02", ("b",), [[2.0]])],
        [],
    ),
    "numbers and a freq that is a number": (
        "log.csv",
        "date,id,x\n0,a,1\n4,b,2\n10,c,3\n",
        {"freq": 5},
        [(0, ("a", "b"), [[1.0], [2.0]]), (10, ("c",), [[3.0]])],
        [],
    ),
    "dates and a freq that is a number": (
        "sales.csv",
        "date,id,x\n2024-01-31,a,1\n",
        {"freq": 7},
        "column 'date' of {file} contains dates such as '2024-01-31'; freq is a number; add a unit, as in '7D'",
        [],
    ),
    "freq ME": (
        "calls.csv",
        "date,id,x\n2024-01-05 10:00,a,1\n2024-01-06 10:00,b,2\n2024-02-01 12:30,c,3\n",
        {"freq": "ME"},
        [("2024-01-01", ("a", "b"), [[1.0], [2.0]]), ("2024-02-01", ("c",), [[3.0]])],
        [],
    ),
    "freq MS": (
        "calls.csv",
        "date,id,x\n2024-01-05 10:00,a,1\n2024-01-06 10:00,b,2\n2024-02-01 12:30,c,3\n",
        {"freq": "MS"},
        [("2024-01-01", ("a", "b"), [[1.0], [2.0]]), ("2024-02-01", ("c",), [[3.0]])],
        [],
    ),
    "freq W-FRI": (
        "calls.csv",
        "date,id,x\n2024-01-05 10:00,a,1\n2024-01-06 10:00,b,2\n2024-02-01 12:30,c,3\n",
        {"freq": "W-FRI"},
        [("2023-12-30", ("a",), [[1.0]]), ("2024-01-06", ("b",), [[2.0]]), ("2024-01-27", ("c",), [[3.0]])],
        [],
    ),
    "freq 1mo": (
        "calls.csv",
        "date,id,x\n2024-01-05 10:00,a,1\n2024-01-06 10:00,b,2\n2024-02-01 12:30,c,3\n",
        {"freq": "1mo"},
        [("2024-01-01", ("a", "b"), [[1.0], [2.0]]), ("2024-02-01", ("c",), [[3.0]])],
        [],
    ),
    "freq QE": (
        "calls.csv",
        "date,id,x\n2024-01-05 10:00,a,1\n2024-01-06 10:00,b,2\n2024-02-01 12:30,c,3\n",
        {"freq": "QE"},
        [("2024-01-01", ("a", "b", "c"), [[1.0], [2.0], [3.0]])],
        [],
    ),
    "freq 2h": (
        "calls.csv",
        "date,id,x\n2024-01-05 10:00,a,1\n2024-01-06 10:00,b,2\n2024-02-01 12:30,c,3\n",
        {"freq": "2h"},
        [
            ("2024-01-05T10:00:00", ("a",), [[1.0]]),
            ("2024-01-06T10:00:00", ("b",), [[2.0]]),
            ("2024-02-01T12:00:00", ("c",), [[3.0]]),
        ],
        [],
    ),
    "freq W": (
        "calls.csv",
        "date,id,x\n2024-01-05 10:00,a,1\n2024-01-06 10:00,b,2\n2024-02-01 12:30,c,3\n",
        {"freq": "W"},
        [("2024-01-01", ("a", "b"), [[1.0], [2.0]]), ("2024-01-29", ("c",), [[3.0]])],
        [],
    ),
    "freq YE-JUN": (
        "calls.csv",
        "date,id,x\n2024-01-05 10:00,a,1\n2024-01-06 10:00,b,2\n2024-02-01 12:30,c,3\n",
        {"freq": "YE-JUN"},
        [("2023-07-01", ("a", "b", "c"), [[1.0], [2.0], [3.0]])],
        [],
    ),
    "freq QS-FEB": (
        "calls.csv",
        "date,id,x\n2024-01-05 10:00,a,1\n2024-01-06 10:00,b,2\n2024-02-01 12:30,c,3\n",
        {"freq": "QS-FEB"},
        [("2023-11-01", ("a", "b"), [[1.0], [2.0]]), ("2024-02-01", ("c",), [[3.0]])],
        [],
    ),
    "freq 1d12h": (
        "calls.csv",
        "date,id,x\n2024-01-05 10:00,a,1\n2024-01-06 10:00,b,2\n2024-02-01 12:30,c,3\n",
        {"freq": "1d12h"},
        [("2024-01-05", ("a", "b"), [[1.0], [2.0]]), ("2024-02-01", ("c",), [[3.0]])],
        [],
    ),
    "freq fortnight": (
        "calls.csv",
        "date,id,x\n2024-01-05 10:00,a,1\n2024-01-06 10:00,b,2\n2024-02-01 12:30,c,3\n",
        {"freq": "fortnight"},
        "freq='fortnight' is not understood; pass a number and a unit, such as '7D', '12h', '2W', 'W-FRI', '1mo', 'QE', '1Y' or '15 rows'",
        [],
    ),
    "an unsorted file": (
        "sales.csv",
        "date,id,x\n2024-02-01,a,1\n2024-01-01,b,2\n2024-02-01,c,3\n",
        {},
        [("2024-01-01", ("b",), [[2.0]]), ("2024-02-01", ("a", "c"), [[1.0], [3.0]])],
        [],
    ),
    "ids with zeros in front, blanks, and NA": (
        "people.csv",
        "week,name,x\n1,007,1\n1, 7 ,2\n1,NA,3\n1,Zoë,4\n",
        {},
        [(1, ("007", "7", "NA", "Zoë"), [[1.0], [2.0], [3.0], [4.0]])],
        [],
    ),
    "an id that is missing": (
        "people.csv",
        "time,id,x\n1,,1\n",
        {},
        "line 2 of {file} ('1,,1') has no id in column 'id'; pass missing='drop' to leave such rows out, or fill it in first",
        [],
    ),
    "two columns that could be the time": (
        "people.csv",
        "date,time,id,x\n2024-01-01,10:00,a,1\n",
        {},
        "cannot find the time column of {file}: 'date', 'time' could each be the time; pass time= with one of them, or names=[...]",
        [],
    ),
    "no column that could be the time": (
        "people.csv",
        "when,id,x\n2024-01-01,a,1\n",
        {},
        "cannot find the time column of {file}: it has 'when', 'id', 'x'; pass time= with one of them, or names=[...]",
        [],
    ),
    "an index saved by pandas": (
        "people.csv",
        ",date,id,x\n0,2024-01-01,a,1\n1,2024-01-01,b,2\n",
        {},
        [("2024-01-01", ("a", "b"), [[1.0], [2.0]])],
        [],
    ),
    "an index saved twice": (
        "people.csv",
        "Unnamed: 0.1,Unnamed: 0,date,id,x\n0,0,2024-01-01,a,1\n",
        {},
        [("2024-01-01", ("a",), [[1.0]])],
        [],
    ),
    "prices with dates as index": (
        "prices.csv",
        ",AAPL,MSFT\n2024-01-01,1,2\n2024-01-02,3,4\n",
        {"freq": "2 rows"},
        [("2024-01-01", ("AAPL", "MSFT"), [[1.0, 3.0], [2.0, 4.0]])],
        [],
    ),
    "prices, the last rows left over": (
        "prices.csv",
        "Date,AAPL,MSFT\n2024-01-01,1,2\n2024-01-02,3,4\n2024-01-03,5,6\n",
        {"freq": "2 rows"},
        [("2024-01-01", ("AAPL", "MSFT"), [[1.0, 3.0], [2.0, 4.0]])],
        ["rows at the end of {file} that do not fill a window of 2 rows were left out: 1"],
    ),
    "prices, the last days left over": (
        "prices.csv",
        "Date,AAPL,MSFT\n2024-01-01,1,2\n2024-01-02,3,4\n2024-01-03,5,6\n",
        {"freq": "2D"},
        [
            ("2024-01-01", ("AAPL", "MSFT"), [[1.0, 3.0], [2.0, 4.0]]),
            ("2024-01-03", ("AAPL", "MSFT"), [[5.0], [6.0]]),
        ],
        [],
    ),
    "prices with a gap": (
        "prices.csv",
        "Date,AAPL,MSFT\n2024-01-01,1,2\n2024-01-02,,4\n",
        {"freq": "2D"},
        "line 3 of {file} ('2024-01-02,,4') has no value in column 'AAPL'; pass missing='drop' to leave such rows out, or fill it in first",
        [],
    ),
    "prices without a freq": (
        "prices.csv",
        "Date,AAPL,MSFT\n2024-01-01,1,2\n",
        {},
        "{file} contains series, whose values in a window are features; pass the length of a window, as in freq='30D' or freq='20 rows'",
        [],
    ),
    "names of objects in a column without a usual name": (
        "bikes.csv",
        "week,station,arrivals,departures\n1,Elm St,3,4\n1,Oak St,5,6\n2,Elm St,7,8\n2,Oak St,NA,1\n",
        {"missing": "drop"},
        [(1, ("Elm St", "Oak St"), [[3.0, 4.0], [5.0, 6.0]]), (2, ("Elm St",), [[7.0, 8.0]])],
        [],
    ),
    "the same, sorted by object, with some of the features": (
        "bikes.csv",
        "week,station,arrivals,departures\n1,Elm St,3,4\n2,Elm St,7,8\n1,Oak St,5,6\n",
        {"features": ["arrivals"]},
        [(1, ("Elm St", "Oak St"), [[3.0], [5.0]]), (2, ("Elm St",), [[7.0]])],
        [],
    ),
    "the same, as series": (
        "prices.csv",
        "date,asset,close\n2024-01-01,A,1\n2024-01-01,B,2\n2024-01-02,A,3\n2024-01-02,B,4\n",
        {"value": "close", "freq": "2D"},
        [("2024-01-01", ("A", "B"), [[1.0, 3.0], [2.0, 4.0]])],
        [],
    ),
    "numbers of objects in a column named like an id": (
        "badges.csv",
        "day,badge_id,visits,hours\n1,17,3,4\n1,4,5,6\n2,17,7,8\n",
        {},
        [(1, ("17", "4"), [[3.0, 4.0], [5.0, 6.0]]), (2, ("17",), [[7.0, 8.0]])],
        [],
    ),
    "texts beside numbers in a column named like an id": (
        "sales.csv",
        "day,region,team_id,sales\n1,north,7,3\n1,south,8,5\n2,north,7,6\n",
        {},
        "columns 'region', 'team_id' of {file} could each be the id; pass id= with one of them, or source= and target= for edges",
        [],
    ),
    "several columns of texts without usual names": (
        "bikes.csv",
        "week,station,city,arrivals\n1,Elm St,York,3\n1,Oak St,York,5\n",
        {},
        "columns 'station', 'city' of {file} could each be the id; pass id= with one of them, or source= and target= for edges",
        [],
    ),
    "texts among prices, one row for each date": (
        "prices.csv",
        "Date,AAPL,comment\n2024-01-01,1,open\n2024-01-02,2,closed\n",
        {"freq": "2D"},
        "line 2 of {file} ('2024-01-01,1,open'): 'open' in column 'comment' is not a number; name the columns to use with features=[...], or the ends of edges with source= and target=",
        [],
    ),
    "a tidy table of prices": (
        "prices.csv",
        "date,symbol,price\n2024-01-02,A,3\n2024-01-01,A,1\n2024-01-01,B,2\n2024-01-02,B,4\n",
        {"value": "price", "freq": "2D"},
        [("2024-01-01", ("A", "B"), [[1.0, 3.0], [2.0, 4.0]])],
        [],
    ),
    "a tidy table of prices, without value=": (
        "prices.csv",
        "date,symbol,price\n2024-01-02,A,3\n2024-01-01,A,1\n2024-01-01,B,2\n2024-01-02,B,4\n",
        {"freq": "2D"},
        "id 'A' has 2 rows at time 2024-01-01; pass aggregate='mean' (or 'sum', 'last') to combine them, or value='price' for a series",
        [],
    ),
    "a tidy table with a price too many": (
        "prices.csv",
        "date,symbol,price\n2024-01-02,A,3\n2024-01-01,A,1\n2024-01-01,B,2\n2024-01-02,B,4\n2024-01-02,B,5\n",
        {"value": "price", "freq": "2D"},
        "id 'B' has 2 rows at time 2024-01-02; pass aggregate='mean' (or 'sum', 'last') to combine them",
        [],
    ),
    "decimal commas": (
        "umsatz.csv",
        "datum;name;x\n1;a;1,5\n1;b;2\n",
        {"time": "datum", "decimal": ","},
        [(1, ("a", "b"), [[1.5], [2.0]])],
        [],
    ),
    "decimal commas, not said": (
        "umsatz.csv",
        "datum;name;x\n1;a;1,5\n",
        {"time": "datum"},
        "line 2 of {file} ('1;a;1,5'): '1,5' in column 'x' is not a number; remove separators of thousands, or pass decimal=',' for decimal commas",
        [],
    ),
    "a file in Latin-1": (
        "leute.csv",
        b"time,id,x\n1,Zo\xeb,1\n",
        {},
        "line 2 of {file} cannot be read: '1,Zo??1'; it is not UTF-8; pass its encoding, as in encoding='latin-1'",
        [],
    ),
    "a file in Latin-1, said": (
        "leute.csv",
        b"time,id,x\n1,Zo\xeb,1\n",
        {"encoding": "latin-1"},
        [(1, ("Zoë",), [[1.0]])],
        [],
    ),
    "a file in UTF-16, as Excel saves it": (
        "leute.csv",
        b"\xff\xfet\x00i\x00m\x00e\x00,\x00i\x00d\x00,\x00x\x00\n\x001\x00,\x00Z\x00o\x00\xeb\x00,\x001\x00\n\x00",
        {"encoding": "utf-16"},
        [(1, ("Zoë",), [[1.0]])],
        [],
    ),
    "a file with a byte order mark": (
        "leute.csv",
        b"\xef\xbb\xbftime,id,x\n1,Zo\xc3\xab,1\n",
        {},
        [(1, ("Zoë",), [[1.0]])],
        [],
    ),
    "lines that end in several ways": (
        "mixed.csv",
        "time,id,x\r\n1,a,1\n1,b,2\r\n",
        {},
        [(1, ("a", "b"), [[1.0], [2.0]])],
        [],
    ),
    "lines that end in several ways, with an index": (
        "mixed.csv",
        ",time,id,x\r\n0,1,a,1\n1,1,b,2\r\n",
        {},
        [(1, ("a", "b"), [[1.0], [2.0]])],
        [],
    ),
    "columns set with blanks": (
        "table.txt",
        "time id   x\n1  a  1\n1 b 2\n",
        {},
        [(1, ("a", "b"), [[1.0], [2.0]])],
        [],
    ),
    "comments": (
        "table.csv",
        "# made by hand\n\ntime,id,x\n1,a,1\n# more\n1,b,2\n",
        {},
        [(1, ("a", "b"), [[1.0], [2.0]])],
        [],
    ),
    "tabs": ("table.tsv", "time\tid\tx\n1\ta\t1\n", {}, [(1, ("a",), [[1.0]])], []),
    "a packed file": ("table.csv.gz", gzip.compress(b"time,id,x\n1,a,1\n"), {}, [(1, ("a",), [[1.0]])], []),
    "JSON lines": (
        "log.jsonl",
        '{"time": 1, "id": "007", "x": 1.5}\n{"time": 1, "id": "8", "x": 2}\n',
        {},
        [(1, ("007", "8"), [[1.5], [2.0]])],
        [],
    ),
    "JSON lines that end in several ways": (
        "log.jsonl",
        '{"time": 1, "id": "a", "x": 1}\r\n{"time": 1, "id": "b", "x": 2}\n\r{"time": 1, "id": "c", "x": 3}\r',
        {},
        [(1, ("a", "b", "c"), [[1.0], [2.0], [3.0]])],
        [],
    ),
    "packed JSON lines that end in several ways": (
        "log.jsonl.gz",
        gzip.compress(b'{"time": 1, "id": "a", "x": 1}\r{"time": 1, "id": "b", "x": 2}\r\n'),
        {},
        [(1, ("a", "b"), [[1.0], [2.0]])],
        [],
    ),
    "JSON lines that end in several ways, one of them no object": (
        "log.jsonl",
        '{"time": 1, "id": "a", "x": 1}\r\n\n{"time": 1, "id": "b", "x": 2}\rword\n',
        {},
        "line 4 of {file} ('word') cannot be read: it must be a JSON object, one for each row",
        [],
    ),
    "JSON lines that end in several ways, not in UTF-8": (
        "log.jsonl",
        b'{"time": 1, "id": "a", "x": 1}\r\n{"time": 1, "id": "Zo\xeb", "x": 2}\n',
        {},
        "line 2 of {file} is not UTF-8; pass its encoding, as in encoding='latin-1'",
        [],
    ),
    "JSON lines in another encoding": (
        "log.jsonl",
        b'{"time": 1, "id": "Zo\xeb", "x": 1}\n',
        {"encoding": "latin-1"},
        [(1, ("Zoë",), [[1.0]])],
        [],
    ),
    "JSON lines in an unknown encoding": (
        "log.jsonl",
        b'{"time": 1, "id": "Zo\xeb", "x": 1}\n',
        {},
        'line 1 of {file} cannot be read: \'{"time": 1, "id": "Zo??, "x": 1}\'; it is not UTF-8; pass its encoding, as in encoding=\'latin-1\'',
        [],
    ),
    "JSON lines, the last cut off": (
        "log.jsonl",
        '{"time": 1, "id": "007", "x": 1.5}\n\n{"time": 1, "id": "8", "x"',
        {},
        'line 3 of {file} (\'{"time": 1, "id": "8", "x"\') cannot be read: it must be a JSON object, one for each row',
        [],
    ),
    "a JSON array": (
        "log.json",
        '[{"time": 1, "id": "007", "x": 1.5},\n',
        {},
        'line 1 of {file} (\'[{"time": 1, "id": "007", "x": 1.5},\') cannot be read: it must be a JSON object, one for each row',
        [],
    ),
    "JSON lines with a word": (
        "log.jsonl",
        '{"time": 1, "id": "007", "x": 1.5}\n{"time": 1, "id": "8", "x": "word"}\n',
        {},
        'line 2 of {file} (\'{"time": 1, "id": "8", "x": "word"}\'): \'word\' in column \'x\' is not a number; name the columns to use with features=[...], or the ends of edges with source= and target=',
        [],
    ),
    "a row that is too short": (
        "table.csv",
        "time,id,x\n1,a,1\n1,b\n1,c,3\n",
        {},
        "line 3 of {file} cannot be read: '1,b'; it has 2 values, but there are 3 columns",
        [],
    ),
    "a row that is too long": (
        "table.csv",
        "time,id,x\n1,a,1\n1,b,2,3\n",
        {},
        "line 3 of {file} cannot be read: '1,b,2,3'; it has 4 values, but there are 3 columns",
        [],
    ),
    "a word among numbers": (
        "table.csv",
        "time,id,x\n1,a,1\n1,b,word\n",
        {},
        "line 3 of {file} ('1,b,word'): 'word' in column 'x' is not a number; name the columns to use with features=[...], or the ends of edges with source= and target=",
        [],
    ),
    "an infinite value": (
        "table.csv",
        "time,id,x\n1,a,1\n1,b,-inf\n",
        {"missing": "drop"},
        "line 3 of {file} ('1,b,-inf'): '-inf' in column 'x' is not finite; replace it by a number, or leave it empty and pass missing='drop'",
        [],
    ),
    "two columns of names": (
        "mail.csv",
        "time,name,friend\n1,ann,bob\n",
        {},
        "line 2 of {file} ('1,ann,bob'): 'bob' in column 'friend' is not a number; name the columns to use with features=[...], or the ends of edges with source= and target=",
        [],
    ),
    "a missing value": (
        "table.csv",
        "time,id,x\n1,a,1\n1,b,NA\n",
        {},
        "line 3 of {file} ('1,b,NA') has no value in column 'x'; pass missing='drop' to leave such rows out, or fill it in first",
        [],
    ),
    "a missing value, dropped": (
        "table.csv",
        "time,id,x\n1,a,1\n1,b,NA\n",
        {"missing": "drop"},
        [(1, ("a",), [[1.0]])],
        [],
    ),
    "a quotation mark that is not closed": (
        "table.csv",
        'time,id,x\n1,"a,1\n1,b,2\n',
        {},
        "line 2 of {file} cannot be read: '1,\"a,1\\n1,b,2'; a quotation mark is not closed, or text follows a closed one",
        [],
    ),
    "names with commas and line breaks": (
        "table.csv",
        'time,id,x\n1,"Smith, Ann",1\n1,"two\nlines",2\n',
        {},
        [(1, ("Smith, Ann", "two\nlines"), [[1.0], [2.0]])],
        [],
    ),
    "numbers in the first line": (
        "contacts.txt",
        "1 2 100\n2 3 150\n",
        {},
        "line 1 of {file} contains numbers, not names of columns; name its 3 columns, as in names=['time', 'source', 'target']",
        [],
    ),
    "numbers in the first line, named": (
        "contacts.txt",
        "1 2 100\n2 3 150\n",
        {"names": ["source", "target", "time"]},
        [(100, ("1", "2"), [[0.0, 1.0], [1.0, 0.0]]), (150, ("2", "3"), [[0.0, 1.0], [1.0, 0.0]])],
        [],
    ),
    "an empty file": (
        "table.csv",
        "",
        {},
        "{file} is empty; it needs a line of column names and rows below it",
        [],
    ),
    "names without rows": ("table.csv", "time,id,x\n", {}, [], []),
    "a spreadsheet": (
        "table.xlsx",
        b"PK",
        {},
        "{file} must end in one of .csv, .tsv, .txt, .jsonl, .ndjson, .json, .parquet, .pq, .npy, .npz, .mat; unpack, convert or rename it",
        [],
    ),
    "edges that go both ways": (
        "mail.csv",
        "time,source,target,weight\n1,a,b,3\n1,b,a,1\n1,a,a,5\n1,a,b,2\n1,b,c,4\n",
        {},
        "edges of {file} go both ways, as from 'a' to 'b' and back at time 1; pass directed='sum' (the total, as of contacts), directed='mean' or directed='max'",
        [],
    ),
    "edges that go both ways, sum": (
        "mail.csv",
        "time,source,target,weight\n1,a,b,3\n1,b,a,1\n1,a,a,5\n1,a,b,2\n1,b,c,4\n",
        {"directed": "sum"},
        [(1, ("a", "b", "c"), [[5.0, 6.0, 0.0], [6.0, 0.0, 4.0], [0.0, 4.0, 0.0]])],
        [],
    ),
    "edges that go both ways, mean": (
        "mail.csv",
        "time,source,target,weight\n1,a,b,3\n1,b,a,1\n1,a,a,5\n1,a,b,2\n1,b,c,4\n",
        {"directed": "mean"},
        [(1, ("a", "b", "c"), [[5.0, 3.0, 0.0], [3.0, 0.0, 2.0], [0.0, 2.0, 0.0]])],
        [],
    ),
    "edges that go both ways, max": (
        "mail.csv",
        "time,source,target,weight\n1,a,b,3\n1,b,a,1\n1,a,a,5\n1,a,b,2\n1,b,c,4\n",
        {"directed": "max"},
        [(1, ("a", "b", "c"), [[5.0, 5.0, 0.0], [5.0, 0.0, 4.0], [0.0, 4.0, 0.0]])],
        [],
    ),
    "edges that go both ways in different weeks": (
        "mail.csv",
        "time,source,target\n1,a,b\n2,b,a\n",
        {},
        [(1, ("a", "b"), [[0.0, 1.0], [1.0, 0.0]]), (2, ("a", "b"), [[0.0, 1.0], [1.0, 0.0]])],
        [],
    ),
    "users and items": (
        "ratings.csv",
        "time,source,target\n1,u1,i1\n1,u2,i2\n1,u1,i2\n",
        {},
        [
            (
                1,
                ("u1", "i1", "u2", "i2"),
                [[0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0]],
            )
        ],
        [
            "the graph of {file} is bipartite: its 2 sources are not targets; clusters will contain objects of both sides"
        ],
    ),
    "several rows of one object": (
        "visits.csv",
        "time,id,x\n1,a,1\n1,a,3\n",
        {},
        "id 'a' has 2 rows at time 1; pass aggregate='mean' (or 'sum', 'last') to combine them, or value='price' for a series",
        [],
    ),
    "several rows of one object, their mean": (
        "visits.csv",
        "time,id,x\n1,a,1\n1,a,3\n",
        {"aggregate": "mean"},
        [(1, ("a",), [[2.0]])],
        [],
    ),
    "a byte order mark and lines that end as on Windows": (
        "table.csv",
        "\ufefftime,id,x\r\n1,a,1\r\n1,b,2\r\n",
        {},
        [(1, ("a", "b"), [[1.0], [2.0]])],
        [],
    ),
    "a delimiter at the end of each line": (
        "table.csv",
        "time,id,x,\n1,a,1,\n1,b,2,\n",
        {},
        [(1, ("a", "b"), [[1.0], [2.0]])],
        [],
    ),
    "a delimiter at the end of each row": (
        "table.csv",
        "time,id,x\n1,a,1,\n1,b,2,\n",
        {},
        [(1, ("a", "b"), [[1.0], [2.0]])],
        [],
    ),
    "separators of thousands": (
        "table.csv",
        'time,id,x\n1,a,"1,234"\n1,b,"2,345.5"\n',
        {},
        "line 2 of {file} ('1,a,\"1,234\"'): '1,234' in column 'x' is not a number; remove separators of thousands, or pass decimal=',' for decimal commas",
        [],
    ),
    "names of columns with units": (
        "table.csv",
        "time [s],id,speed (m/s)\n1,a,1\n",
        {},
        "cannot find the time column of {file}: it has 'time [s]', 'id', 'speed (m/s)'; pass time= with one of them, or names=[...]",
        [],
    ),
    "names of columns with units, said": (
        "table.csv",
        "time [s],id,speed (m/s)\n1,a,1\n",
        {"time": "time [s]"},
        [(1, ("a",), [[1.0]])],
        [],
    ),
    "empty lines at the end": ("table.csv", "time,id,x\n1,a,1\n\n\n\n", {}, [(1, ("a",), [[1.0]])], []),
    "a name of two columns": (
        "table.csv",
        "time,id,x,x\n1,a,1,2\n",
        {},
        "{file} has more than one column 'x'; use distinct names, or pass names=[...] if its first line contains values",
        [],
    ),
    "many spellings of a missing value": (
        "table.csv",
        "time,id,x\n1,a,NaN\n1,b,nan\n1,c,N/A\n1,d,NULL\n1,e,None\n1,f, \n1,g,#N/A\n1,h,1\n",
        {"missing": "drop"},
        [(1, ("h",), [[1.0]])],
        [],
    ),
    "a dash for a missing value": (
        "table.csv",
        "time,id,x\n1,a,-\n1,b,1\n",
        {"missing": "drop"},
        "line 2 of {file} ('1,a,-'): '-' in column 'x' is not a number; leave it empty and pass missing='drop' if it stands for a missing value",
        [],
    ),
    "decimal commas and separators of thousands": (
        "table.csv",
        "time;id;x\n1;a;1.234,5\n",
        {"decimal": ","},
        "line 2 of {file} ('1;a;1.234,5'): '1.234,5' in column 'x' is not a number; remove separators of thousands",
        [],
    ),
    "times that end in Z": (
        "table.csv",
        "time,id,x\n2024-01-01T00:00:00Z,a,1\n2024-01-01T00:00:00.123Z,b,2\n",
        {"freq": "1D"},
        [("2024-01-01", ("a", "b"), [[1.0], [2.0]])],
        [],
    ),
    "times with offsets": (
        "table.csv",
        "time,id,x\n2024-01-01T00:00:00+0200,a,1\n2024-01-01 00:00:00 +02:00,b,2\n",
        {"freq": "1D"},
        [("2023-12-31", ("a", "b"), [[1.0], [2.0]])],
        [],
    ),
    "ISO weeks in months": (
        "table.csv",
        "week,id,x\n2024-W05,a,1\n2024-W06,a,2\n",
        {"freq": "1M"},
        [("2024-01-01", ("a",), [[1.0]]), ("2024-02-01", ("a",), [[2.0]])],
        [],
    ),
    "quarters in two spellings": (
        "table.csv",
        "quarter,id,x\n2024Q1,a,1\n2024-Q2,a,2\n",
        {},
        [("2024-01-01", ("a",), [[1.0]]), ("2024-04-01", ("a",), [[2.0]])],
        [],
    ),
    "quarters before years": (
        "table.csv",
        "quarter,id,x\nQ1 2024,a,1\nQ2 2023,a,2\n",
        {},
        [("2023-04-01", ("a",), [[2.0]]), ("2024-01-01", ("a",), [[1.0]])],
        [],
    ),
    "years with a freq in years": (
        "table.csv",
        "year,id,x\n2023,a,1\n2024,a,2\n",
        {"freq": "1Y"},
        "column 'year' of {file} contains numbers such as 2023, but freq is a time; pass freq as a number, too, or time_format='s' (since 1970), '%Y%m%d' or '%Y'",
        [],
    ),
    "202401 with a freq in months": (
        "table.csv",
        "month,id,x\n202401,a,1\n202402,a,2\n",
        {"freq": "ME"},
        [("2024-01-01", ("a",), [[1.0]]), ("2024-02-01", ("a",), [[2.0]])],
        ["column 'month' of {file} contains 202401, read as 2024-01-01; confirm it with time_format='%Y%m'"],
    ),
    "202413 with a freq in months": (
        "table.csv",
        "month,id,x\n202401,a,1\n202413,a,2\n",
        {"freq": "ME"},
        "column 'month' of {file} contains numbers such as 202401, but freq is a time; pass freq as a number, too, or time_format='s' (since 1970), '%Y%m%d' or '%Y'",
        [],
    ),
    "days since 1900, as in Excel": (
        "table.csv",
        "date,id,x\n45292,a,1\n45293,a,2\n",
        {"freq": "1D"},
        "column 'date' of {file} contains numbers such as 45292, but freq is a time; pass freq as a number, too, or time_format='s' (since 1970), '%Y%m%d' or '%Y'",
        [],
    ),
    "nanoseconds since 1970": (
        "table.csv",
        "time,id,x\n1704067200000000000,a,1\n1704153600000000000,a,2\n",
        {"freq": "1D"},
        [("2024-01-01", ("a",), [[1.0]]), ("2024-01-02", ("a",), [[2.0]])],
        [
            "column 'time' of {file} contains 1.7040672e+18, read as 2024-01-01; confirm it with time_format='ns'"
        ],
    ),
    "fractions of seconds since 1970": (
        "table.csv",
        "time,id,x\n1704067200.25,a,1\n1704153600.5,a,2\n",
        {"freq": "1D"},
        [("2024-01-01", ("a",), [[1.0]]), ("2024-01-02", ("a",), [[2.0]])],
        [
            "column 'time' of {file} contains 1704067200.25, read as 2024-01-01 00:00:00.250000; confirm it with time_format='s'"
        ],
    ),
    "hours without a date": (
        "table.csv",
        "time,id,x\n10:00,a,1\n10:30,a,2\n",
        {"freq": "1h"},
        "column 'time' of {file} contains labels such as '10:00'; for freq, pass time_format='%d/%m/%Y'",
        [],
    ),
    "prices with a gap, dropped": (
        "table.csv",
        "date,A,B\n2024-01-01,1,\n2024-01-02,2,3\n",
        {"freq": "2D", "missing": "drop"},
        [("2024-01-01", ("A",), [[1.0, 2.0]])],
        [],
    ),
    "one adjacency matrix with names": (
        "table.csv",
        ",a,b\na,0,1\nb,1,0\n",
        {},
        "cannot find the time column of {file}: it has '', 'a', 'b'; pass time= with one of them, or names=[...]",
        [],
    ),
    "a negative weight": (
        "table.csv",
        "time,source,target,weight\n1,a,b,-2\n",
        {},
        [(1, ("a", "b"), [[0.0, -2.0], [-2.0, 0.0]])],
        [],
    ),
    "edges with a column of labels": (
        "table.csv",
        "time,source,target,label\n1,a,b,friend\n1,b,c,foe\n",
        {},
        [(1, ("a", "b", "c"), [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])],
        [],
    ),
    "edges with a word for a weight": (
        "table.csv",
        "time,source,target,weight\n1,a,b,strong\n",
        {},
        "line 2 of {file} ('1,a,b,strong'): 'strong' in column 'weight' is not a number; pass weight= with a column of numbers",
        [],
    ),
    "a packed file without .gz": (
        "table.csv",
        gzip.compress(b"time,id,x\n1,a,1\n1,b,2\n"),
        {},
        [(1, ("a", "b"), [[1.0], [2.0]])],
        [],
    ),
    "a plain file named .gz": ("table.csv.gz", b"time,id,x\n1,a,1\n", {}, [(1, ("a",), [[1.0]])], []),
    "a file in UTF-16, not said": (
        "table.csv",
        b"\xff\xfet\x00i\x00m\x00e\x00,\x00i\x00d\x00,\x00x\x00\n\x001\x00,\x00a\x00,\x001\x00\n\x00",
        {},
        "line 1 of {file} is not UTF-8; pass its encoding, as in encoding='utf-16'",
        [],
    ),
    "an unknown encoding": (
        "table.csv",
        "time,id,x\n1,a,1\n",
        {"encoding": "klingon"},
        "{file} cannot be read as klingon text (unknown encoding: klingon); pass its encoding, as in encoding='utf-16'",
        [],
    ),
    "a file of comments": (
        "table.csv",
        "# x\n# y\n",
        {},
        "{file} is empty; it needs a line of column names and rows below it",
        [],
    ),
    "two formats of dates": (
        "table.csv",
        "date,id,x\n2024-01-31,a,1\n31/01/2024,b,2\n",
        {},
        "line 3 of {file} ('31/01/2024,b,2'): '31/01/2024' in column 'date' cannot be read as a date",
        [],
    ),
    "dates as of the C library": (
        "table.csv",
        "date,id,x\nWed Jan 31 10:00:00 2024,a,1\n",
        {"freq": "1D"},
        [("2024-01-31", ("a",), [[1.0]])],
        [],
    ),
    "compact ISO dates": (
        "table.csv",
        "date,id,x\n20240131T101112,a,1\n",
        {"freq": "1D"},
        [("2024-01-31", ("a",), [[1.0]])],
        [],
    ),
    "a row of totals": (
        "table.csv",
        "time,id,x\n1,a,1\nTotal,,1\n",
        {},
        "line 3 of {file} ('Total,,1'): 'Total' in column 'time' cannot be read as a number",
        [],
    ),
    "a footer": (
        "table.csv",
        "time,id,x\n1,a,1\nSource: Eurostat\n",
        {},
        "line 3 of {file} cannot be read: 'Source: Eurostat'; it has 1 values, but there are 3 columns",
        [],
    ),
    "a title above the names": (
        "table.csv",
        "Report of sales\n\ntime,id,x\n1,a,1\n",
        {},
        "cannot find the time column of {file}: it has 'Report', 'of', 'sales'; pass time= with one of them, or names=[...]",
        [],
    ),
    "ids that are equal as numbers": (
        "table.csv",
        "time,id,x\n1,1.0,1\n1,1,2\n",
        {},
        [(1, ("1.0", "1"), [[1.0], [2.0]])],
        [],
    ),
    "lines that end in a carriage return": (
        "table.csv",
        "time,id,x\r1,a,1\r1,b,2\r",
        {},
        [(1, ("a", "b"), [[1.0], [2.0]])],
        [],
    ),
    "a self-loop": (
        "table.csv",
        "time,source,target\n1,a,a\n1,a,b\n",
        {},
        [(1, ("a", "b"), [[1.0, 1.0], [1.0, 0.0]])],
        [],
    ),
    "a JSON array in one line": (
        "log.json",
        '[{"time":1,"id":"a","x":1},{"time":1,"id":"b","x":2}]',
        {},
        'line 1 of {file} (\'[{"time":1,"id":"a","x":1},{"time":1,"id":"b","x":2}]\') cannot be read: it must be a JSON object, one for each row',
        [],
    ),
    "JSON lines without a key": (
        "log.jsonl",
        '{"time":1,"id":"a","x":1}\n{"time":1,"id":"b"}\n',
        {},
        "line 2 of {file} ('{\"time\":1,\"id\":\"b\"}') has no value in column 'x'; pass missing='drop' to leave such rows out, or fill it in first",
        [],
    ),
    "a line for Excel": ("table.csv", "sep=;\ntime;id;x\n1;a;1\n", {}, [(1, ("a",), [[1.0]])], []),
    "a minus sign of typography": (
        "table.csv",
        "time,id,x\n1,a,−1.5\n",
        {},
        "line 2 of {file} ('1,a,−1.5'): '−1.5' in column 'x' is not a number; name the columns to use with features=[...], or the ends of edges with source= and target=",
        [],
    ),
}


def plain(step):
    """Return the time, the ids and the values of a step as simple Python values."""
    time = step.time
    if isinstance(time, datetime.datetime):
        time = time.isoformat().removesuffix("T00:00:00")
    values = step.values.toarray() if scipy.sparse.issparse(step.values) else step.values
    return time, step.ids, values.tolist()


@pytest.mark.parametrize("name", FILES)
def test_a_file(name, tmp_path):
    path, text, options, expected, said = FILES[name]
    file = tmp_path / path
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = [plain(step) for step in read_steps(file, **options)]
        except AffectError as error:
            found = str(error).replace(str(file), "{file}")
    assert found == expected
    assert [str(warning.message).replace(str(file), "{file}") for warning in caught] == said


# How a reader with the csv module would read the times of some files above.
TWINS = {
    "a byte order mark and lines that end as on Windows": (",", float),
    "a delimiter at the end of each line": (",", float),
    "a delimiter at the end of each row": (",", float),
    "names of columns with units, said": (",", float),
    "empty lines at the end": (",", float),
    "many spellings of a missing value": (",", float),
    "ISO weeks in months": (",", lambda t: datetime.datetime.strptime(f"{t}-1", "%G-W%V-%u").replace(day=1)),
    "quarters in two spellings": (",", lambda t: datetime.datetime(int(t[:4]), 3 * int(t[-1]) - 2, 1)),
    "quarters before years": (",", lambda t: datetime.datetime(int(t[3:]), 3 * int(t[1]) - 2, 1)),
    "202401 with a freq in months": (",", lambda t: datetime.datetime.strptime(t, "%Y%m")),
    "nanoseconds since 1970": (",", lambda t: _since_1970(int(t) / 1e9)),
    "fractions of seconds since 1970": (",", lambda t: _since_1970(float(t))),
    "times that end in Z": (",", lambda t: _in_utc(t.replace("Z", "+00:00"))),
    "times with offsets": (",", lambda t: _in_utc(t.replace(" +", "+").replace("+0200", "+02:00"))),
    "dates as of the C library": (
        ",",
        lambda t: datetime.datetime.strptime(" ".join(t.split()[1:3] + t.split()[4:]), "%b %d %Y"),
    ),
    "compact ISO dates": (",", lambda t: datetime.datetime.strptime(t[:8], "%Y%m%d")),
    "ids that are equal as numbers": (",", float),
    "lines that end in a carriage return": (",", float),
    "a line for Excel": (";", float),
}


def _since_1970(seconds):
    return datetime.datetime(1970, 1, 1) + datetime.timedelta(days=seconds // 86400)


def _in_utc(text):
    moment = datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    return datetime.datetime(moment.year, moment.month, moment.day)


@pytest.mark.parametrize("name", TWINS)
def test_expected_steps_are_those_of_a_slow_reader(name):
    """The steps expected above, from the csv and datetime modules alone."""
    _, text, _, expected, _ = FILES[name]
    delimiter, time_of = TWINS[name]
    text = (text if isinstance(text, str) else gzip.decompress(text).decode()).removeprefix("\ufeff")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("sep=")]
    steps: dict = {}
    for cells in csv.reader(lines[1:], delimiter=delimiter):
        if re.fullmatch(r"[-.\d]+", cells[2]):
            steps.setdefault(time_of(cells[0]), []).append((cells[1], [float(cells[2])]))
    found = []
    for time, rows in sorted(steps.items()):
        label = time.isoformat().removesuffix("T00:00:00") if isinstance(time, datetime.datetime) else time
        found.append((label, tuple(id for id, _ in rows), [values for _, values in rows]))
    assert found == expected
