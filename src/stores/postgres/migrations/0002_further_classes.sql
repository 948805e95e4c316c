-- Parts of the classes with a price of their own, such as audio tokens, and calls: JSON by class, null where a request has
-- none. Prices are decimal texts of pico-credits.
ALTER TABLE request ADD COLUMN further_prices text, ADD COLUMN further_tokens text;
ALTER TABLE adjustment ADD COLUMN further_tokens text;
