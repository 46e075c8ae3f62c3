"""Money: currencies, price lists, line items."""
